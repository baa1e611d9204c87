/**
 * Function calls in a model's text, in the form that Hermes and Qwen models are trained to write:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Rome"}}
 *     </tool_call>
 *
 * Tool calls are sent once complete, never in part, since half a call cannot be taken back. A call that breaks the form, or
 * breaks off, is text like any other. So nothing is lost, and what is sent does not depend on how the text was cut. Text is
 * held back only while it may still become a call. Each character is looked at a bounded number of times, whatever the
 * text.
 */

export interface ToolCall {
  readonly name: string;
  /** JSON of an object, as the model wrote it: numbers keep their digits and keys their order. */
  readonly arguments: string;
}

export type AnswerPart =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "call"; readonly call: ToolCall };

/** What surrounds a call; a tokenizer may have them as control tokens. */
export const toolCallTags = ["<tool_call>", "</tool_call>"] as const;
const [openingTag, closingTag] = toolCallTags;

/** What a function may be called, in a request and by the model. */
export const toolNamePattern = /^[A-Za-z0-9_-]{1,64}$/;

/** As deep as a request's body may be. */
const depthMax = 128;

/** Splits text that arrives in pieces into text and calls. White space beside a call belongs to it. */
export class ToolCallParser {
  /** Not told yet. Outside a call: white space and the beginning of a tag; inside: all since the white space before. */
  #held = "";
  /** The call that is being read; null outside. */
  #form: CallForm | null = null;
  #followsCall = false;

  push(text: string): AnswerPart[] {
    const parts: AnswerPart[] = [];
    for (let rest = text; rest !== ""; ) {
      rest = this.#form === null ? this.#readText(rest, parts) : this.#readCall(this.#form, rest, parts);
    }
    return joined(parts);
  }

  /** The text ended. A call that lacks nothing but its closing tag is whole. */
  end(): AnswerPart[] {
    const parts: AnswerPart[] = [];
    if (this.#form?.lacksOnlyTag) this.#tellCall(this.#held, parts);
    else if (this.#form !== null || !this.#followsCall || !isWhiteSpace(this.#held)) {
      parts.push({ kind: "text", text: this.#held });
    }
    this.#held = "";
    this.#form = null;
    return joined(parts);
  }

  /** Both readers return what is left to read. */
  #readText(text: string, parts: AnswerPart[]): string {
    const all = this.#held + text;
    const tagAt = all.indexOf(openingTag);
    if (tagAt < 0) {
      this.#tellText(all, all.length - openLength(all), parts);
      return "";
    }
    const end = tagAt + openingTag.length;
    this.#tellText(all.slice(0, end), tagAt, parts);
    this.#form = new CallForm();
    return all.slice(end);
  }

  #readCall(form: CallForm, text: string, parts: AnswerPart[]): string {
    for (let i = 0; i < text.length; i++) {
      const outcome = form.read(text[i]!);
      if (outcome === "open") continue;
      const end = outcome === "whole" ? i + 1 : i;
      const all = this.#held + text.slice(0, end);
      this.#form = null;
      this.#held = "";
      if (outcome === "whole") this.#tellCall(all, parts);
      else this.#tellText(all, all.length, parts);
      return text.slice(end);
    }
    this.#held += text;
    return "";
  }

  /** Tells the text up to `end`, less the white space there, and holds back what follows. */
  #tellText(text: string, end: number, parts: AnswerPart[]): void {
    const certain = trimmedEnd(text, end);
    if (certain > 0) {
      parts.push({ kind: "text", text: text.slice(0, certain) });
      this.#followsCall = false;
    }
    this.#held = text.slice(certain);
  }

  #tellCall(text: string, parts: AnswerPart[]): void {
    const call = callOf(text);
    this.#followsCall = call !== null;
    parts.push(call === null ? { kind: "text", text } : { kind: "call", call });
  }
}

/** What may still become a call: after the opening tag an object, then the closing tag, with white space between. */
class CallForm {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;
  #isObjectRead = false;
  #closingRead = 0;

  get lacksOnlyTag(): boolean {
    return this.#isObjectRead;
  }

  read(unit: string): "open" | "whole" | "broken" {
    if (this.#isObjectRead) return this.#readClosing(unit);
    if (this.#isInString) return this.#readString(unit);
    if (this.#depth === 0) {
      if (unit === "{") this.#depth = 1;
      return unit === "{" || isWhiteSpace(unit) ? "open" : "broken";
    }
    if (unit === '"') this.#isInString = true;
    else if (unit === "{" || unit === "[") this.#depth++;
    else if (unit === "}" || unit === "]") this.#isObjectRead = --this.#depth === 0;
    else if (!/[ \t\n\r,:+\-.0-9Eaeflnrstu]/.test(unit)) return "broken"; // in no number, true, false or null
    return this.#depth > depthMax ? "broken" : "open";
  }

  #readString(unit: string): "open" | "broken" {
    if (unit < " ") return "broken";
    if (this.#isEscaped) this.#isEscaped = false;
    else if (unit === "\\") this.#isEscaped = true;
    else if (unit === '"') this.#isInString = false;
    return "open";
  }

  #readClosing(unit: string): "open" | "whole" | "broken" {
    if (this.#closingRead === 0 && isWhiteSpace(unit)) return "open";
    if (unit !== closingTag[this.#closingRead]) return "broken";
    return ++this.#closingRead === closingTag.length ? "whole" : "open";
  }
}

/** The call in a text that has its form; null when it is no JSON, or not of a name and arguments. */
function callOf(text: string): ToolCall | null {
  const json = text.slice(text.indexOf("{"), text.lastIndexOf("}") + 1);
  let members: { readonly name?: unknown; readonly arguments?: unknown };
  try {
    members = JSON.parse(json) as object;
  } catch {
    return null;
  }
  const { name, arguments: values } = members;
  if (typeof name !== "string" || !toolNamePattern.test(name)) return null;
  if (typeof values !== "object" || values === null || Array.isArray(values)) return null;
  return { name, arguments: memberText(json, "arguments") };
}

/** The text of an object's member. `json` is valid and has it; of several, the last counts, as for `JSON.parse`. */
function memberText(json: string, name: string): string {
  let found = "";
  let depth = 0;
  let key = "";
  let valueAt = 0;
  for (let at = 0; at < json.length; at++) {
    const unit = json[at]!;
    if (unit === '"') {
      const end = stringEnd(json, at);
      if (depth === 1 && valueAt === 0) key = JSON.parse(json.slice(at, end)) as string;
      at = end - 1;
    } else if (unit === "{" || unit === "[") depth++;
    else if (depth === 1 && unit === ":") valueAt = at + 1;
    else if (depth === 1 && (unit === "," || unit === "}")) {
      if (key === name) found = json.slice(valueAt, at).trim();
      valueAt = 0;
    } else if (unit === "}" || unit === "]") depth--;
  }
  return found;
}

/** Index after the string whose first quote is at `start`. */
function stringEnd(json: string, start: number): number {
  let at = start + 1;
  while (json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}

/** Units at the end of a text that may be the beginning of a tag, which holds "<" only as its first. */
function openLength(text: string): number {
  const at = text.lastIndexOf("<");
  return at >= 0 && openingTag.startsWith(text.slice(at)) ? text.length - at : 0;
}

/** `end` moved to before the white space that precedes it. */
function trimmedEnd(text: string, end: number): number {
  let trimmed = end;
  while (trimmed > 0 && isWhiteSpace(text[trimmed - 1]!)) trimmed--;
  return trimmed;
}

/** JSON's white space, all of it. */
function isWhiteSpace(text: string): boolean {
  return /^[ \t\n\r]*$/.test(text);
}

/** Neighbouring texts become one, empty ones none. */
export function joined(parts: readonly AnswerPart[]): AnswerPart[] {
  const result: AnswerPart[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (part.kind === "call") result.push(part);
    else if (last?.kind === "text") result[result.length - 1] = { kind: "text", text: last.text + part.text };
    else if (part.text !== "") result.push(part);
  }
  return result;
}

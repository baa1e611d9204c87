/** Contents of messages in the form that a chat template reads: one text, or a list of parts. */
import type { ChatMessage, Content, TextPart } from "./messages.ts";
import { textOf } from "./messages.ts";

/** Forms of content that a template accepts in messages of one role. */
export interface ContentForms {
  readonly text: boolean;
  /** `one`: only lists with a single part. */
  readonly parts: "any" | "one" | "none";
}

/** Fallback for a role for which the template writes neither form. */
export const plainForms: ContentForms = { text: true, parts: "none" };

/** The message with its content in a form that the template accepts. */
export function inForm(message: ChatMessage, { text, parts }: ContentForms): ChatMessage {
  const { content } = message;
  if (Array.isArray(content)) {
    if (parts === "any") return message;
    const whole = textOf(message);
    return { ...message, content: parts === "one" && !text ? [partOf(whole)] : whole };
  }
  const wraps = !text && typeof content === "string" && content !== "";
  return wraps ? { ...message, content: [partOf(content)] } : message;
}

const [first, second] = ["Azq1", "Bzq2"];

/** Finds the accepted forms. `write` renders messages with this content; null: the template refuses them. */
export function formsFound(write: (content: Content) => string | null): ContentForms | null {
  const shows = (content: Content, ...texts: readonly string[]): boolean => {
    const written = write(content) ?? "";
    // A quote after the first text shows that the template printed the list itself, as Python or JSON does.
    return texts.every((text) => written.includes(text)) && (texts.length < 2 || !isQuoted(written));
  };
  const text = shows(first, first);
  const isAny = shows([partOf(first), partOf(second)], first, second);
  const isOne = !isAny && !text && shows([partOf(first)], first);
  return text || isAny || isOne ? { text, parts: isAny ? "any" : isOne ? "one" : "none" } : null;
}

function isQuoted(written: string): boolean {
  return new RegExp(`${first}\\\\?['"]`).test(written);
}

export function partOf(text: string): TextPart {
  return { type: "text", text };
}

/** Joins two contents with a text between them, leaving out empty ones. Lists stay lists. */
export function joinedContents(one: Content, other: Content, between = "\n\n"): string | readonly TextPart[] {
  if (!Array.isArray(one) && !Array.isArray(other))
    return [one, other].filter((text) => (text ?? "") !== "").join(between);
  const [before, [next, ...rest]] = [partsOf(one), partsOf(other)];
  const last = before.at(-1);
  if (last === undefined || next === undefined) return next === undefined ? before : [next, ...rest];
  return [...before.slice(0, -1), partOf(last.text + between + next.text), ...rest];
}

/** Content with one part per text; "" for no texts. */
export function contentOf(texts: readonly string[]): string | readonly TextPart[] {
  return texts.length === 0 ? "" : texts.map(partOf);
}

function partsOf(content: Content): readonly TextPart[] {
  if (typeof content === "string") return content === "" ? [] : [partOf(content)];
  return content ?? [];
}

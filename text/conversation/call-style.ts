/** How a chat template wants calls that were made before: their ids, their arguments, the text beside them. */
import { createHash } from "node:crypto";
import { begunValueIn } from "../cut-json.ts";
import { jsonText } from "../jinja/json.ts";
import { jsonTextOf } from "../json-text.ts";
import type { ChatMessage } from "./messages.ts";
import { callsOf, type PastCall, textOf } from "./messages.ts";

export interface CallStyle {
  /** `nine`: nine letters or digits, as Mistral's templates demand. `numbered`: `functions.<name>:<n>`, which is all that Kimi's
   *  write of a call's name. */
  readonly ids: "any" | "nine" | "numbered";
  /** Values, or their JSON as a text. */
  readonly arguments: "values" | "text";
  /** What of arguments that are no JSON object: the text itself, or an object with what can be read of it. */
  readonly cut: "text" | "object";
  /** Beside calls without text. */
  readonly noContent: "" | null;
  /** The template writes one call of a message and no more. */
  readonly isOneEach: boolean;
}

/** For templates that show in no style what calls leave behind. */
export const plainStyle: CallStyle = {
  ids: "any",
  arguments: "values",
  cut: "text",
  noContent: "",
  isOneEach: false,
};

/** Every style, the plainest first; `cut` is for another question. */
export function* callStyles(): Generator<CallStyle> {
  for (const isOneEach of [false, true])
    for (const ids of ["any", "nine", "numbered"] as const)
      for (const args of ["values", "text"] as const)
        for (const noContent of ["", null] as const)
          yield { ...plainStyle, ids, arguments: args, noContent, isOneEach };
}

/** Messages whose calls and results are paired, in a style. What is written of one message is a matter of it and those before. */
export function inStyle(messages: readonly ChatMessage[], style: CallStyle): readonly ChatMessage[] {
  const idOf = idsIn(style);
  return (style.isOneEach ? oneEach(messages) : messages).map((message) => {
    const calls = callsOf(message);
    if (message.role === "tool") return { ...message, tool_call_id: idOf.result(message.tool_call_id) };
    if (calls.length === 0) return message;
    const written = calls.map((call) => ({
      ...call,
      id: idOf.call(call),
      function: { ...call.function, arguments: argumentsOf(call, style) },
    }));
    const content = textOf(message) === "" ? style.noContent : message.content;
    return { ...message, content, tool_calls: written };
  });
}

function idsIn({ ids }: CallStyle) {
  const numbered = new Map<unknown, string>();
  let count = 0;
  return {
    call({ id, function: { name } }: PastCall): string | undefined {
      if (ids !== "numbered") return ids === "nine" && id !== undefined ? nineOf(id) : id;
      const written = `functions.${name}:${count++}`;
      numbered.set(id, written);
      return written;
    },
    result(id: unknown): unknown {
      if (typeof id !== "string" || ids === "any") return id;
      return ids === "nine" ? nineOf(id) : (numbered.get(id) ?? id);
    },
  };
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** An id of nine letters or digits, the same for the same id: that of a client stays if it is one. */
export function nineOf(id: string): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  const digest = createHash("sha256").update(id).digest();
  return Array.from(digest.subarray(0, 9), (byte) => alphabet[byte % alphabet.length]).join("");
}

function argumentsOf({ function: { arguments: given } }: PastCall, style: CallStyle): unknown {
  if (typeof given === "object") {
    return style.arguments === "values" ? given : (jsonTextOf(given) ?? jsonText(given));
  }
  return style.arguments === "values" && style.cut === "object" ? objectIn(given) : given;
}

/** What can be read of arguments that are no JSON object. */
function objectIn(text: string): object {
  const value = text.trimStart().startsWith("{") ? begunValueIn(text) : { arguments: text };
  return value as object;
}

/** Messages with one call each, and the results of a call right behind it. */
function oneEach(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const written: ChatMessage[] = [];
  for (let at = 0; at < messages.length; at++) {
    const message = messages[at]!;
    const calls = callsOf(message);
    if (calls.length < 2) {
      written.push(message);
      continue;
    }
    let end = at + 1;
    while (messages[end]?.role === "tool") end++;
    const results = new Set(messages.slice(at + 1, end));
    const { reasoning_content: _, ...others } = message;
    for (const [index, call] of calls.entries()) {
      written.push(
        index === 0 ? { ...message, tool_calls: [call] } : { ...others, content: "", tool_calls: [call] },
      );
      for (const result of results) {
        if (result.tool_call_id !== call.id) continue;
        written.push(result);
        results.delete(result);
      }
    }
    written.push(...results);
    at = end - 1;
  }
  return written;
}

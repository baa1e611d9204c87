/** A chat template's requirements on past calls: their ids, arguments and accompanying text. */
import { createHash } from "node:crypto";
import { begunValueIn } from "../cut-json.ts";
import { jsonOfArguments } from "../formats/written-calls.ts";
import { jsonOfText, memberTexts } from "../jinja/json.ts";
import { jsonTextOf, rememberJsonText } from "../json-text.ts";
import type { ChatMessage } from "./messages.ts";
import { callsOf, type PastCall, textOf } from "./messages.ts";

export interface CallStyle {
  /**
   * `nine`: nine letters or digits, as Mistral's templates require. `numbered`: `functions.<name>:<n>`, from
   * which Kimi's templates read a call's name.
   */
  readonly ids: "any" | "nine" | "numbered";
  /** Values; or their JSON as one text; or one text per value, which is its JSON unless it is a string. */
  readonly arguments: "values" | "text" | "texts";
  /**
   * Form of arguments that are not a JSON object (truncated ones): the text itself, or an object with the
   * part that could be parsed.
   */
  readonly cut: "text" | "object";
  /** Content of a message with calls and no text. */
  readonly noContent: "" | null;
  /** True if the template writes only one call per message. */
  readonly isOneEach: boolean;
}

/** Fallback for templates that write calls and results in none of the styles. */
export const plainStyle: CallStyle = {
  ids: "any",
  arguments: "values",
  cut: "text",
  noContent: "",
  isOneEach: false,
};

/**
 * All styles, the plainest first; `cut` is determined separately. `isTagged`: the model writes one text per
 * argument.
 */
export function* callStyles(isTagged: boolean): Generator<CallStyle> {
  for (const isOneEach of [false, true])
    for (const ids of ["any", "nine", "numbered"] as const)
      for (const args of ["values", "text", ...(isTagged ? (["texts"] as const) : [])] as const)
        for (const noContent of ["", null] as const)
          yield { ...plainStyle, ids, arguments: args, noContent, isOneEach };
}

/**
 * Applies a style to messages with paired calls and results. The output for a message depends only on it and
 * earlier ones.
 */
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

/** Deterministic id of nine letters or digits; keeps a client's id that has this form. */
export function nineOf(id: string): string {
  if (/^[A-Za-z0-9]{9}$/.test(id)) return id;
  const digest = createHash("sha256").update(id).digest();
  return Array.from(digest.subarray(0, 9), (byte) => alphabet[byte % alphabet.length]).join("");
}

function argumentsOf({ function: { arguments: given } }: PastCall, style: CallStyle): unknown {
  const isObject = typeof given === "object";
  if (style.arguments === "text") return argumentsText(given);
  if (!isObject && style.cut === "text") return given;
  const values = isObject ? given : objectIn(given);
  return style.arguments === "values" ? values : textsOf(values);
}

/** The arguments as a text. */
export function argumentsText(given: object | string): string {
  return typeof given === "string" ? given : jsonOfArguments(given);
}

/** Each argument as the model writes it: a string unchanged, others as JSON. */
function textsOf(values: object): object {
  const members = memberTexts(values, jsonTextOf).map(
    ({ name, text }) => `${jsonOfText(name)}: ${jsonOfText(text)}`,
  );
  const json = `{${members.join(", ")}}`;
  const texts = JSON.parse(json) as object;
  // Keeps the order of names that are numbers.
  rememberJsonText(texts, json);
  return texts;
}

/** Object with the part of truncated arguments that can be parsed. */
export function objectIn(text: string): object {
  const value = text.trimStart().startsWith("{") ? begunValueIn(text) : { arguments: text };
  return value as object;
}

/** Splits messages into ones with a single call, each directly followed by its results. */
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

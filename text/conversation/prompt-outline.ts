import { type ChatMessage, callsOf, textOf } from "./messages.ts";

/** Part of a rendered prompt: the text up to the end of a message, or up to the end of the list of tools. */
export interface PromptPart {
  /** Index in the conversation; null for tools. */
  readonly message: number | null;
  readonly role: string;
  /** End in the prompt's text, in bytes of UTF-8. */
  readonly endByte: number;
}

/** Number of a message's first characters that are searched for. */
const NEEDLE_CHARACTERS = 48;
/** Maximum messages that are not found: each search for one reads the whole rest of the prompt. */
const MISSED_MAX = 16;

/**
 * Finds the messages in the prompt that a template made of them. A message that the template omits or
 * rewrites has no part; its text belongs to the next part.
 */
export function outlineOf(text: string, messages: readonly ChatMessage[], hasTools: boolean): PromptPart[] {
  const parts: PromptPart[] = [];
  let bytes = 0;
  let at = 0;
  let missed = 0;
  let isBesideTools = hasTools;
  const endAt = (message: number | null, role: string, end: number): void => {
    bytes += Buffer.byteLength(text.slice(at, end));
    at = end;
    parts.push({ message, role, endByte: bytes });
  };
  for (const [index, message] of messages.entries()) {
    const needles = needlesOf(message);
    if (needles.length === 0) continue;
    let start = -1;
    let end = at;
    for (const needle of needles) {
      const found = text.indexOf(needle.slice(0, NEEDLE_CHARACTERS), end);
      if (found < 0) continue;
      if (start < 0) start = found;
      end =
        found + (text.startsWith(needle, found) ? needle.length : Math.min(needle.length, NEEDLE_CHARACTERS));
    }
    if (start < 0) {
      missed += 1;
      if (missed > MISSED_MAX) break;
      continue;
    }
    if (isBesideTools && message.role !== "system" && message.role !== "developer") {
      isBesideTools = false;
      endAt(null, "tools", start);
    }
    endAt(index, message.role, end);
  }
  return parts;
}

/** Texts of a message in the order in which templates write them. */
function needlesOf(message: ChatMessage): readonly string[] {
  const calls = callsOf(message).map((call) => call.function.name);
  return [textOf(message).trim(), ...calls].filter((text) => text !== "");
}

/** Part that contains a byte; null after the last message, where the assistant's turn is opened. */
export function partAt(parts: readonly PromptPart[], byte: number): PromptPart | null {
  return parts.find(({ endByte }) => byte < endByte) ?? null;
}

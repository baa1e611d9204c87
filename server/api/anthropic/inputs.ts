/**
 * Converts a conversation in Anthropic's blocks to the messages that chat templates read. The order is kept:
 * moving a system message to the front would change the cached prefix.
 */
import { contentOf, joinedContents } from "../../../text/conversation/content.ts";
import type { PastCall } from "../../../text/conversation/messages.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal, textOrPartsKind } from "../fields.ts";
import { pastCall, readArguments } from "../openai/past-calls.ts";
import { askedFrom } from "../past.ts";
import { openedText } from "../sealed.ts";
import { type Reading, textOf } from "./blocks.ts";
import { type Ignored, noteCacheControl, noteTheRest } from "./support.ts";
import { isToolChange } from "./tool-changes.ts";

/** A cache mark: the prefix before it should stay cached for `ttlMs`. */
export interface CacheMark {
  /** Number of messages before the mark. */
  readonly messages: number;
  readonly ttlMs: number;
}

/**
 * Parses `system` and `messages` with their cache marks in order. `ignored` may already hold a mark from the
 * tools, which precede them.
 */
export function conversationOf(
  fields: Fields,
  ignored: Ignored,
): { readonly messages: ChatMessage[]; readonly marks: CacheMark[] } {
  const marks: CacheMark[] = [];
  const messages: ChatMessage[] = [];
  const noteMark = (): void => {
    const ttlMs = ignored.takeMark();
    if (ttlMs !== null) marks.push({ messages: messages.length, ttlMs });
  };
  noteMark();
  const given = fields.list("messages", requestLimits.messagesMax, objectKind);
  if (given === undefined || given.length === 0) {
    throw refusal("messages", "an array of at least one message", fields.peek("messages"));
  }
  messages.push(...systemOf(fields, ignored));
  noteMark();
  const turns = given.map((turn, index) => fieldsOf(turn, `messages[${index}]`));
  const from = askedFrom(
    turns.map((turn) =>
      holdsResults(turn) ? "tool" : turn.raw("role", { enum: ["user", "assistant", "system"] }),
    ),
  );
  for (const [index, turn] of turns.entries()) {
    messages.push(...messagesOf(turn, { isAsked: index >= from, ignored }));
    noteMark();
  }
  noteCacheControl(fields, ignored);
  noteMark();
  return { messages, marks };
}

function holdsResults(turn: Fields): boolean {
  const content = turn.raw("content", textOrPartsKind);
  return (
    Array.isArray(content) &&
    content.some((block: { readonly type?: unknown } | null) => block?.type === "tool_result")
  );
}

function messagesOf(turn: Fields, reading: Reading): ChatMessage[] {
  const messages = messagesOfRole(turn, reading);
  noteTheRest(turn, "messages", reading.ignored);
  return messages;
}

function messagesOfRole(turn: Fields, reading: Reading): ChatMessage[] {
  const role = turn.raw("role", { enum: ["user", "assistant", "system"] });
  const past = { ...reading, isAsked: false };
  switch (role) {
    case "system": {
      const content = contentIn(turn, "content", "messages.content", past);
      const given = turn.peek("content");
      const changesToolsAlone = content === "" && Array.isArray(given) && given.length > 0;
      return changesToolsAlone ? [] : [{ role, content }];
    }
    case "user":
      return userMessages(turn, reading);
    case "assistant":
      return [assistantMessage(turn, past)];
    default:
      throw refusal(turn.pathOf("role"), "user, assistant or system", role);
  }
}

/**
 * Line that Claude Code puts before its system prompt. It differs between conversations and would prevent
 * shared cached prefixes.
 */
const attribution = /^x-anthropic-billing-header:[^\n]*(\n|$)/;

function systemOf(fields: Fields, ignored: Ignored): ChatMessage[] {
  const system = fields.raw("system", textOrPartsKind);
  if (system === undefined) return [];
  const [first = "", ...others] = textsOf(fields, "system", "system", { isAsked: true, ignored });
  const kept = first.replace(attribution, "");
  if (kept !== first) ignored.add("x-anthropic-billing-header");
  const texts = [kept, ...others].filter((text) => text !== "");
  if (texts.length === 0) return [];
  return [{ role: "system", content: typeof system === "string" ? kept : contentOf(texts) }];
}

/** Messages of a user turn. Results of calls are messages of their own, between the texts around them. */
function userMessages(turn: Fields, reading: Reading): ChatMessage[] {
  const content = turn.raw("content", textOrPartsKind);
  if (typeof content === "string") return [{ role: "user", content }];
  const messages: ChatMessage[] = [];
  let texts: string[] = [];
  const endText = (): void => {
    if (texts.length > 0) messages.push({ role: "user", content: contentOf(texts) });
    texts = [];
  };
  for (const block of blocksOf(turn, "content")) {
    if (block.raw("type", { type: "string" }) === "tool_result") {
      endText();
      messages.push(resultOf(block, reading.ignored));
    } else texts.push(textOf(block, "messages.content", reading));
    noteTheRest(block, "messages.content", reading.ignored);
  }
  endText();
  if (messages.length === 0) {
    if (reading.isAsked) throw refusal(turn.pathOf("content"), "a string or at least one block", content);
    messages.push({ role: "user", content: "" });
  }
  return messages;
}

/** Message of a call's result. Templates have no field for a failed call, so its text says so. */
function resultOf(block: Fields, ignored: Ignored): ChatMessage {
  const content = contentIn(block, "content", "messages.content.content", { isAsked: false, ignored });
  const isError = block.boolean("is_error") ?? false;
  const id = block.string("tool_use_id");
  return {
    role: "tool",
    ...(id === undefined ? {} : { tool_call_id: id }),
    content: isError ? joinedContents("Error:", content, " ") : content,
  };
}

function assistantMessage(turn: Fields, reading: Reading): ChatMessage {
  const content = turn.raw("content", textOrPartsKind);
  if (typeof content === "string") return { role: "assistant", content };
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: PastCall[] = [];
  const { ignored } = reading;
  for (const block of blocksOf(turn, "content")) {
    switch (block.raw("type", { type: "string" })) {
      case "tool_use":
        block.raw("caller"); // says that the model itself made the call
        calls.push(
          pastCall(block.string("id"), block.requiredString("name"), readArguments(block.raw("input"))),
        );
        break;
      case "thinking":
        thoughts.push(...thoughtsOf(block));
        break;
      case "redacted_thinking":
        block.string("data");
        ignored.add("messages.content.redacted_thinking");
        break;
      default:
        texts.push(textOf(block, "messages.content", reading));
    }
    noteTheRest(block, "messages.content", ignored);
  }
  return {
    role: "assistant",
    content: contentOf(texts),
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join("\n") }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

/** Text of a block of thoughts, or of its signature if the answer left out the text. */
function thoughtsOf(block: Fields): string[] {
  const text = block.string("thinking") ?? "";
  const signature = block.string("signature") ?? "";
  return text === "" ? openedText(signature) : [text];
}

/** A string, or the parts of text blocks. Throws 400. */
function contentIn(fields: Fields, name: string, place: string, reading: Reading): ChatMessage["content"] {
  const texts = textsOf(fields, name, place, reading);
  return typeof fields.peek(name) === "string" ? texts[0]! : contentOf(texts);
}

/** Texts of a string or of blocks other than changes of tools; empty if the field is missing in a past message. Throws 400. */
function textsOf(fields: Fields, name: string, place: string, reading: Reading): string[] {
  const content = fields.raw(name, textOrPartsKind);
  if (typeof content === "string") return [content];
  if (content === undefined && !reading.isAsked) return [];
  return blocksOf(fields, name).flatMap((block) => {
    const texts = isToolChange(block) ? [] : [textOf(block, place, reading)];
    noteTheRest(block, place, reading.ignored);
    return texts;
  });
}

function blocksOf(fields: Fields, name: string): Fields[] {
  const path = fields.pathOf(name);
  const content = fields.raw(name, textOrPartsKind);
  if (!Array.isArray(content)) throw refusal(path, "a string or an array of blocks", content);
  const blocks = fields.list(name, requestLimits.contentPartsMax, objectKind)!;
  return blocks.map((block, index) => fieldsOf(block, `${path}[${index}]`));
}

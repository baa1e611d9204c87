/**
 * A conversation in Anthropic's blocks, as the messages that chat templates read. Nothing changes its place: a system
 * message among the others stays there, since moving it to the front would change the prefix that is cached.
 */
import { badRequest } from "../../http/errors.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import type { ChatMessage } from "../openai/inputs.ts";
import { type PastToolCall, toolCallIdOf, toolNameOf } from "../openai/tools.ts";
import { requestLimits } from "../request-limits.ts";
import { type Ignored, noteCacheControl, noteTheRest } from "./support.ts";

/** A place that was marked for the cache: all before it is to be kept for so long. */
export interface CacheMark {
  /** Messages before it. */
  readonly messages: number;
  readonly ttlMs: number;
}

/** `system` and `messages`, and the marks in them, by their places; one may have been read already, of what goes before. */
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
  const given = fields.list("messages", requestLimits.messagesMax);
  if (given === undefined || given.length === 0) {
    throw refusal("messages", "an array of at least one message", fields.raw("messages"));
  }
  messages.push(...systemOf(fields, ignored));
  noteMark();
  for (const [index, message] of given.entries()) {
    messages.push(...messagesOf(fieldsOf(message, `messages[${index}]`), ignored));
    noteMark();
  }
  noteCacheControl(fields, ignored);
  noteMark();
  return { messages, marks };
}

function messagesOf(turn: Fields, ignored: Ignored): ChatMessage[] {
  const messages = messagesOfRole(turn, ignored);
  noteTheRest(turn, "messages", ignored);
  return messages;
}

function messagesOfRole(turn: Fields, ignored: Ignored): ChatMessage[] {
  const role = turn.raw("role");
  switch (role) {
    case "system":
      return [{ role, content: textsOf(turn, "content", "messages.content", ignored).join("\n") }];
    case "user":
      return userMessages(turn, ignored);
    case "assistant":
      return [assistantMessage(turn, ignored)];
    default:
      throw refusal(turn.pathOf("role"), "user, assistant or system", role);
  }
}

/**
 * A line that Claude Code puts before its system prompt, other in each conversation: with it no two of them would share
 * anything of what is cached.
 */
const attribution = /^x-anthropic-billing-header:[^\n]*(\n|$)/;

function systemOf(fields: Fields, ignored: Ignored): ChatMessage[] {
  if (fields.raw("system") === undefined) return [];
  const [first = "", ...others] = textsOf(fields, "system", "system", ignored);
  const kept = first.replace(attribution, "");
  if (kept !== first) ignored.add("x-anthropic-billing-header");
  const content = (kept === "" ? others : [kept, ...others]).join("\n");
  return content === "" ? [] : [{ role: "system", content }];
}

/** Results of calls are messages of their own, between the texts around them. */
function userMessages(turn: Fields, ignored: Ignored): ChatMessage[] {
  const content = turn.raw("content");
  if (typeof content === "string") return [{ role: "user", content }];
  const messages: ChatMessage[] = [];
  let texts: string[] = [];
  const endText = (): void => {
    if (texts.length > 0) messages.push({ role: "user", content: texts.join("\n") });
    texts = [];
  };
  for (const block of blocksOf(turn, "content")) {
    if (block.raw("type") === "tool_result") {
      endText();
      messages.push(resultOf(block, ignored));
    } else texts.push(textOf(block, "text or tool_result"));
    noteTheRest(block, "messages.content", ignored);
  }
  endText();
  if (messages.length === 0) throw refusal(turn.pathOf("content"), "a string or at least one block", content);
  return messages;
}

/** Templates have no field for a call that failed, so its text says so. */
function resultOf(block: Fields, ignored: Ignored): ChatMessage {
  const text =
    block.raw("content") === undefined
      ? ""
      : textsOf(block, "content", "messages.content.content", ignored).join("\n");
  const isError = block.boolean("is_error") ?? false;
  return {
    role: "tool",
    tool_call_id: toolCallIdOf(block, "tool_use_id"),
    content: isError ? `Error: ${text}` : text,
  };
}

function assistantMessage(turn: Fields, ignored: Ignored): ChatMessage {
  const content = turn.raw("content");
  if (typeof content === "string") return { role: "assistant", content };
  const texts: string[] = [];
  const thoughts: string[] = [];
  const calls: PastToolCall[] = [];
  for (const block of blocksOf(turn, "content")) {
    switch (block.raw("type")) {
      case "tool_use":
        calls.push(callOf(block));
        break;
      case "thinking":
        thoughts.push(block.requiredString("thinking"));
        block.string("signature"); // the writer's own; nothing here reads it
        break;
      case "redacted_thinking":
        block.string("data");
        ignored.add("messages.content.redacted_thinking");
        break;
      default:
        texts.push(textOf(block, "text, tool_use, thinking or redacted_thinking"));
    }
    noteTheRest(block, "messages.content", ignored);
  }
  const { toolCallsMax } = requestLimits;
  if (calls.length > toolCallsMax) {
    const path = turn.pathOf("content");
    throw badRequest(`${path} may hold ${toolCallsMax} calls at most, but holds ${calls.length}`, path);
  }
  return {
    role: "assistant",
    content: texts.join("\n"),
    ...(thoughts.length === 0 ? {} : { reasoning_content: thoughts.join("\n") }),
    ...(calls.length === 0 ? {} : { tool_calls: calls }),
  };
}

function callOf(block: Fields): PastToolCall {
  const path = block.pathOf("input");
  const input = block.raw("input") ?? {};
  fieldsOf(input, path);
  block.raw("caller"); // says that the model itself made the call
  return {
    id: toolCallIdOf(block, "id"),
    type: "function",
    function: { name: toolNameOf(block), arguments: input as Readonly<Record<string, unknown>> },
  };
}

/** A string, or blocks of text. */
function textsOf(fields: Fields, name: string, place: string, ignored: Ignored): string[] {
  const content = fields.raw(name);
  if (typeof content === "string") return [content];
  return blocksOf(fields, name).map((block) => {
    const text = textOf(block, "text");
    noteTheRest(block, place, ignored);
    return text;
  });
}

function blocksOf(fields: Fields, name: string): Fields[] {
  const path = fields.pathOf(name);
  const content = fields.raw(name);
  if (!Array.isArray(content)) throw refusal(path, "a string or an array of blocks", content);
  const blocks = fields.list(name, requestLimits.contentPartsMax)!;
  return blocks.map((block, index) => fieldsOf(block, `${path}[${index}]`));
}

function textOf(block: Fields, allowed: string): string {
  const type = block.raw("type");
  if (type === "text") return block.requiredString("text");
  throw refusal(block.pathOf("type"), `${allowed}, as only text can be read here`, type);
}

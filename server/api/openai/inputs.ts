/** Inputs for a model to continue: messages or raw prompts. */
import type { TokenId } from "../../../base/token.ts";
import { contentOf } from "../../../text/conversation/content.ts";
import { badRequest, promptTooLong } from "../../http/errors.ts";
import { type ChatMessage, type Prompt, roles } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ChatPrompt } from "../../request/prompt.ts";
import type { ServedModel } from "../../request/served-model.ts";
import {
  type FieldKind,
  type Fields,
  fieldsOf,
  integerIn,
  objectKind,
  refusal,
  textOrPartsKind,
} from "../fields.ts";
import { askedFrom, note, type Reading, readInstead } from "../past.ts";
import { pastCallsOf } from "./past-calls.ts";
import { isOneOf } from "./support.ts";

/**
 * Parses `messages`. Adds to `ignored` the names of fields that it reads differently from what the client
 * sent.
 */
export function messagesOf(fields: Fields, ignored: Set<string> = new Set()): ChatMessage[] {
  const messages = fields.list("messages", requestLimits.messagesMax, objectKind);
  if (messages === undefined || messages.length === 0) {
    throw refusal("messages", "an array of at least one message", fields.peek("messages"));
  }
  const given = messages.map((message, index) => fieldsOf(message, `messages[${index}]`));
  const from = askedFrom(given.map((message) => message.taken("role")));
  return given.map((message, index) => parseMessage(message, { isAsked: index >= from, ignored }));
}

function parseMessage(fields: Fields, reading: Reading): ChatMessage {
  const given = fields.string("role");
  // `function` was the role of results in OpenAI's first function calling.
  const role = given === "function" ? "tool" : roles.find((known) => known === given);
  if (role === undefined) {
    throw refusal(fields.pathOf("role"), "system, developer, user, assistant or tool", fields.peek("role"));
  }
  const isAsked = reading.isAsked && role === "user";
  const toolCalls = role === "assistant" ? pastCallsOf(fields) : [];
  if (
    role !== "assistant" &&
    !isOneOf(fields.raw("tool_calls", { type: "array", items: objectKind }), [undefined, []])
  )
    note(reading.ignored, "messages.tool_calls");
  const name = fields.string("name");
  const reasoning = fields.string("reasoning_content") ?? fields.string("reasoning");
  const id = role === "tool" ? fields.string("tool_call_id") : undefined;
  return {
    role,
    content: contentIn(fields, { ...reading, isAsked }),
    ...(name === undefined ? {} : { name }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    ...(id === undefined ? {} : { tool_call_id: id }),
  };
}

/** Content of a message: text, or its parts as texts, with placeholders for content that is not text. */
function contentIn(fields: Fields, reading: Reading): ChatMessage["content"] {
  const content = fields.raw("content", textOrPartsKind);
  const spoken = fields.raw("audio") === undefined ? [] : [readInstead(fields, "audio", "messages", reading)];
  if (typeof content === "string") return [content, ...spoken].join("\n");
  if (content === undefined && !reading.isAsked)
    return [fields.string("refusal") ?? [], spoken].flat().join("\n");
  const path = fields.pathOf("content");
  if (!Array.isArray(content)) throw refusal(path, "a string or an array of parts", content);
  const parts = fields
    .list("content", requestLimits.contentPartsMax, objectKind)!
    .map((part, index) => partText(fieldsOf(part, `${path}[${index}]`), reading));
  return contentOf([...parts, ...spoken]);
}

const textTypes = ["text", "input_text", "output_text", "refusal"];

function partText(part: Fields, reading: Reading): string {
  const type = part.raw("type", { type: "string" });
  if (typeof type !== "string") throw refusal(part.pathOf("type"), "a string", type);
  if (!textTypes.includes(type)) return readInstead(part, type, "messages.content", reading);
  return part.requiredString(type === "refusal" ? "refusal" : "text");
}

/**
 * End of a chat's prompt: the header of an assistant's message, the end of the last message, or a point
 * within it.
 */
export function promptEndOf(
  fields: Fields,
): Required<Pick<ChatPrompt, "addGenerationPrompt" | "continuesLast">> {
  const continuesLast = fields.boolean("continue_final_message") ?? false;
  const given = fields.boolean("add_generation_prompt");
  if (continuesLast && given === true) {
    throw badRequest(
      "continue_final_message and add_generation_prompt ask for two ends of the prompt: give one",
      "continue_final_message",
    );
  }
  return { addGenerationPrompt: given ?? !continuesLast, continuesLast };
}

/** Arguments for the chat template, which alone knows the names that it accepts. */
export function templateArgumentsOf(fields: Fields): Readonly<Record<string, unknown>> {
  const entries = fields.entries("chat_template_kwargs", requestLimits.templateArgumentsMax, {});
  // The client's own object: its numbers and keys are read from its text (text/json-text.ts).
  return entries === undefined ? {} : (fields.taken("chat_template_kwargs") as Record<string, unknown>);
}

/** Kind of a field that holds prompts. */
export const promptKind: FieldKind = {
  type: ["string", "array"],
  items: { type: ["string", "integer", "array"], items: { type: "integer" } },
};

/** A prompt or a list of prompts, each a text or token ids. */
export function promptsOf(
  given: unknown,
  model: Pick<ServedModel, "contextMax" | "vocabSize">,
  param = "prompt",
  countMax: number = requestLimits.promptsMax,
): readonly Prompt[] {
  if (typeof given === "string") return [given];
  const expected = "a string, an array of strings, an array of token ids or an array of such arrays";
  if (!Array.isArray(given) || given.length === 0) throw refusal(param, expected, given);
  if (typeof given[0] === "number") return [promptOf(given, param, model)];
  if (given.length > countMax) {
    throw badRequest(`${param} may hold ${countMax} texts at most, but holds ${given.length}`, param);
  }
  return given.map((item: unknown, index) => {
    if (typeof item === "string") return item;
    if (!Array.isArray(item)) throw refusal(`${param}[${index}]`, "a string or an array of token ids", item);
    return promptOf(item, `${param}[${index}]`, model);
  });
}

/**
 * Validates a prompt's token ids. Throws 400 for a prompt that is too long, before it looks at its tokens.
 */
function promptOf(
  list: readonly unknown[],
  path: string,
  { contextMax, vocabSize }: Pick<ServedModel, "contextMax" | "vocabSize">,
): TokenId[] {
  if (list.length > contextMax) throw promptTooLong(contextMax, list.length, path);
  return tokensOf(list, path, vocabSize);
}

export function tokensOf(list: readonly unknown[], path: string, vocabSize: number): TokenId[] {
  const isToken = (item: unknown): boolean =>
    Number.isInteger(item) && Number(item) >= 0 && Number(item) < vocabSize;
  const wrong = list.findIndex((item) => !isToken(item));
  if (wrong >= 0) integerIn(list[wrong], { min: 0, max: vocabSize - 1 }, `${path}[${wrong}]`);
  return list as TokenId[];
}

/**
 * Items of a response's input and output. They have the same shape in requests, in the store and in answers,
 * so that a client can send output back as input. Fields that a client leaves out (id, status) are filled in.
 */

import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal, textOrPartsKind } from "../fields.ts";
import { askedFrom, describe, note, type Reading, readInstead } from "../past.ts";
import { openedText } from "../sealed.ts";

export type ItemStatus = "in_progress" | "completed" | "incomplete";

interface InputText {
  readonly type: "input_text";
  readonly text: string;
}

export interface OutputText {
  readonly type: "output_text";
  readonly text: string;
  readonly annotations: readonly never[];
  readonly logprobs: readonly object[];
}

export interface ReasoningText {
  readonly type: "reasoning_text";
  readonly text: string;
}

interface Common {
  readonly id: string;
  readonly status: ItemStatus;
}

export type MessageItem = Common & {
  readonly type: "message";
  readonly role: "user" | "assistant" | "system" | "developer";
  readonly content: readonly (InputText | OutputText)[];
};

export type ReasoningItem = Common & {
  readonly type: "reasoning";
  readonly summary: readonly object[];
  readonly content: readonly ReasoningText[];
  /** Present if the client asks for it, to send it back in place of `content`. */
  readonly encrypted_content?: string;
};

export type FunctionCallItem = Common & {
  readonly type: "function_call";
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  /** JSON of an object, possibly truncated. */
  readonly arguments: string;
};

export type CustomCallItem = Common & {
  readonly type: "custom_tool_call";
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  readonly input: string;
};

export type CallOutputItem = Common & {
  readonly type: "function_call_output" | "custom_tool_call_output";
  readonly call_id: string;
  /** Text, or parts that are all text. */
  readonly output: string | readonly InputText[];
};

/** Summary of what came before, written by the model. */
export type CompactionItem = Common & {
  readonly type: "compaction";
  /** The summary, sealed. */
  readonly encrypted_content: string;
};

export type Item =
  | MessageItem
  | ReasoningItem
  | FunctionCallItem
  | CustomCallItem
  | CallOutputItem
  | CompactionItem;

/** Reference to a stored item by its id. */
export interface Reference {
  readonly type: "item_reference";
  readonly id: string;
}

/**
 * Parses `input`. `idOf` makes ids for items without one. `ignored` receives the names of fields that are
 * read differently from what the client sent. Throws 400.
 */
export function inputItemsOf(
  fields: Fields,
  idOf: (prefix: string) => string,
  ignored: Set<string> = new Set(),
): (Item | Reference)[] {
  const given = fields.raw("input", textOrPartsKind);
  if (given === undefined) return [];
  if (typeof given === "string") {
    const content = [{ type: "input_text", text: given } as const];
    return [{ type: "message", id: idOf("msg"), role: "user", status: "completed", content }];
  }
  if (!Array.isArray(given)) throw refusal("input", "a string or an array of items", given);
  return itemsOf(fields, "input", idOf, ignored);
}

/** Parses a list of items; empty if there is none. Throws 400. */
export function itemsOf(
  fields: Fields,
  name: string,
  idOf: (prefix: string) => string,
  ignored: Set<string>,
): (Item | Reference)[] {
  const list = fields.list(name, requestLimits.messagesMax, objectKind) ?? [];
  const items = list.map((item, index) => fieldsOf(item, `${name}[${index}]`));
  const from = askedFrom(items.map(roleOf));
  return items.map((item, index) => itemOf(item, idOf, { isAsked: index >= from, ignored }));
}

const messageRoles = ["user", "assistant", "system", "developer"];

function typeOf(item: Fields): unknown {
  return item.raw("type", { type: "string" }) ?? (item.has("role") === false ? "item_reference" : "message");
}

/** Role of the message that the item is, or belongs to. */
function roleOf(item: Fields): unknown {
  const type = typeOf(item);
  if (type === "message") return item.raw("role", { enum: messageRoles });
  return typeof type === "string" && type.endsWith("_output") ? "tool" : "assistant";
}

function itemOf(item: Fields, idOf: (prefix: string) => string, reading: Reading): Item | Reference {
  const type = typeOf(item);
  const common = (prefix: string): Common => ({
    id: item.string("id") ?? idOf(prefix),
    status: statusOf(item),
  });
  const past = { ...reading, isAsked: false };
  switch (type) {
    case "item_reference":
      return { type: "item_reference", id: item.requiredString("id") };
    case "message":
      return { type: "message", ...common("msg"), ...messageOf(item, reading) };
    case "reasoning":
      return { type: "reasoning", ...common("rs"), ...reasoningOf(item, past) };
    case "function_call":
      return {
        type: "function_call",
        ...common("fc"),
        ...calledOf(item),
        arguments: textIn(item.raw("arguments")),
      };
    case "custom_tool_call":
      return {
        type: "custom_tool_call",
        ...common("ctc"),
        ...calledOf(item),
        input: textIn(item.raw("input")),
      };
    case "function_call_output":
      return { type: "function_call_output", ...common("fco"), ...callOutputOf(item, past) };
    case "custom_tool_call_output":
      return { type: "custom_tool_call_output", ...common("ctco"), ...callOutputOf(item, past) };
    case "compaction": {
      const sealed = item.requiredString("encrypted_content");
      if (openedText(sealed).length > 0) return { type, ...common("cmp"), encrypted_content: sealed };
      return { type: "message", ...common("msg"), ...foreignOf(type, item, reading.ignored) };
    }
    default:
      if (typeof type !== "string") throw refusal(item.pathOf("type"), "a string", type);
      return { type: "message", ...common("msg"), ...foreignOf(type, item, reading.ignored) };
  }
}

/** Converts an item of a tool that OpenAI runs, or of an unknown type, to a message that describes it. */
function foreignOf(type: string, item: Fields, ignored: Set<string>): Pick<MessageItem, "role" | "content"> {
  note(ignored, `input.${type}`);
  const text = describe(type, item.all());
  return type.endsWith("_call")
    ? { role: "assistant", content: [{ type: "output_text", text, annotations: [], logprobs: [] }] }
    : { role: "user", content: [{ type: "input_text", text }] };
}

/** A text as it is, another value as its JSON; "" for a missing one. */
function textIn(value: unknown): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function calledOf(item: Fields): Pick<FunctionCallItem, "call_id" | "name" | "namespace"> {
  const namespace = item.string("namespace");
  const called = { call_id: item.string("call_id") ?? "", name: item.requiredString("name") };
  return namespace === undefined ? called : { ...called, namespace };
}

function messageOf(item: Fields, reading: Reading): Pick<MessageItem, "role" | "content"> {
  const role = item.raw("role", { enum: messageRoles });
  if (role !== "user" && role !== "assistant" && role !== "system" && role !== "developer")
    throw refusal(item.pathOf("role"), "user, assistant, system or developer", role);
  const partOf = (text: string): InputText | OutputText =>
    role === "assistant"
      ? { type: "output_text", text, annotations: [], logprobs: [] }
      : { type: "input_text", text };
  const isAsked = reading.isAsked && role === "user";
  return { role, content: textsOf(item, "content", { ...reading, isAsked }).map(partOf) };
}

/** Reasoning from `content`, from a string sealed by this server, or from another server's summary. */
function reasoningOf(item: Fields, past: Reading): Omit<ReasoningItem, keyof Common | "type"> {
  const summary = item.list("summary", requestLimits.contentPartsMax, objectKind) ?? [];
  const encrypted = item.string("encrypted_content");
  const texts = [
    textsOf(item, "content", past),
    encrypted === undefined ? [] : openedText(encrypted),
    textsOf(item, "summary", past),
  ].find((texts) => texts.length > 0);
  if (texts === undefined && encrypted !== undefined) note(past.ignored, "input.reasoning");
  return {
    summary: summary as readonly object[],
    content: (texts ?? []).map((text) => ({ type: "reasoning_text", text })),
    ...(encrypted === undefined ? {} : { encrypted_content: encrypted }),
  };
}

function callOutputOf(item: Fields, past: Reading): Pick<CallOutputItem, "call_id" | "output"> {
  const call_id = item.string("call_id") ?? "";
  const given = item.raw("output");
  if (!Array.isArray(given)) return { call_id, output: textIn(given) };
  return { call_id, output: textsOf(item, "output", past).map((text) => ({ type: "input_text", text })) };
}

const textTypes = ["input_text", "output_text", "reasoning_text", "summary_text", "text", "refusal"];

/** Texts of a string or of parts; empty if the field is missing in past items. Throws 400. */
function textsOf(item: Fields, name: string, reading: Reading): string[] {
  const given = item.raw(name, textOrPartsKind);
  if (typeof given === "string") return [given];
  if (given === undefined && !reading.isAsked) return [];
  const path = item.pathOf(name);
  if (!Array.isArray(given)) throw refusal(path, "a string or an array of parts", given);
  return item.list(name, requestLimits.contentPartsMax, objectKind)!.map((value, index) => {
    const part = fieldsOf(value, `${path}[${index}]`);
    const type = part.raw("type", { type: "string" });
    if (typeof type !== "string") throw refusal(part.pathOf("type"), "a string", type);
    if (!textTypes.includes(type)) return readInstead(part, type, `input.${name}`, reading);
    return part.requiredString(type === "refusal" ? "refusal" : "text");
  });
}

/** Maps other vendors' statuses to "completed", since past items have ended. */
function statusOf(item: Fields): ItemStatus {
  const status = item.raw("status", { type: "string" });
  return status === "in_progress" || status === "incomplete" ? status : "completed";
}

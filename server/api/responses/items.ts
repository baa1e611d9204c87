/**
 * Items: what a response is made from, and what it is made of. One shape for what a client sends, what is kept, and what a
 * model answers, so that an output may be sent back as input. What clients leave out (an id, a status) is filled in.
 */
import { badRequest, quote } from "../../http/errors.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import { toolCallIdOf, toolNameOf } from "../openai/tools.ts";
import { requestLimits } from "../request-limits.ts";

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
  /** Present where the client asked for it: what it sends back in place of `content`. */
  readonly encrypted_content?: string;
};

export type FunctionCallItem = Common & {
  readonly type: "function_call";
  readonly call_id: string;
  readonly name: string;
  readonly namespace?: string;
  /** JSON of an object. */
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

export type Item = MessageItem | ReasoningItem | FunctionCallItem | CustomCallItem | CallOutputItem;

/** A stored item by its id. */
interface Reference {
  readonly type: "item_reference";
  readonly id: string;
}

/** `input`, with ids made by `idOf` for the items that have none. Throws 400. */
export function inputItemsOf(fields: Fields, idOf: (prefix: string) => string): (Item | Reference)[] {
  const given = fields.raw("input");
  if (given === undefined) return [];
  if (typeof given === "string") {
    const content = [{ type: "input_text", text: given } as const];
    return [{ type: "message", id: idOf("msg"), role: "user", status: "completed", content }];
  }
  if (!Array.isArray(given)) throw refusal("input", "a string or an array of items", given);
  const list = fields.list("input", requestLimits.messagesMax)!;
  return list.map((item, index) => itemOf(fieldsOf(item, `input[${index}]`), idOf));
}

function itemOf(item: Fields, idOf: (prefix: string) => string): Item | Reference {
  const type: unknown = item.raw("type") ?? (item.raw("role") === undefined ? "item_reference" : "message");
  const common = (prefix: string): Common => ({ id: givenId(item) ?? idOf(prefix), status: statusOf(item) });
  switch (type) {
    case "item_reference": {
      const id = givenId(item);
      if (id === undefined) throw refusal(item.pathOf("id"), "the id of an item", undefined);
      return { type: "item_reference", id };
    }
    case "message":
      return { type: "message", ...common("msg"), ...messageOf(item) };
    case "reasoning":
      return { type: "reasoning", ...common("rs"), ...reasoningOf(item) };
    case "function_call":
      return {
        type: "function_call",
        ...common("fc"),
        ...calledOf(item),
        arguments: item.requiredString("arguments"),
      };
    case "custom_tool_call":
      return {
        type: "custom_tool_call",
        ...common("ctc"),
        ...calledOf(item),
        input: item.requiredString("input"),
      };
    case "function_call_output":
      return { type: "function_call_output", ...common("fco"), ...callOutputOf(item) };
    case "custom_tool_call_output":
      return { type: "custom_tool_call_output", ...common("ctco"), ...callOutputOf(item) };
    default:
      throw badRequest(
        `${item.pathOf("type")}: items of the type ${quote(type)} are not supported by this server; supported are ` +
          "message, reasoning, function_call, custom_tool_call, their outputs and item_reference",
        item.pathOf("type"),
      );
  }
}

function calledOf(item: Fields): Pick<FunctionCallItem, "call_id" | "name" | "namespace"> {
  const namespace = item.string("namespace");
  const called = { call_id: toolCallIdOf(item, "call_id"), name: toolNameOf(item) };
  return namespace === undefined ? called : { ...called, namespace };
}

function messageOf(item: Fields): Pick<MessageItem, "role" | "content"> {
  const role = item.raw("role");
  if (role !== "user" && role !== "assistant" && role !== "system" && role !== "developer")
    throw refusal(item.pathOf("role"), "user, assistant, system or developer", role);
  const partOf = (text: string): InputText | OutputText =>
    role === "assistant"
      ? { type: "output_text", text, annotations: [], logprobs: [] }
      : { type: "input_text", text };
  return { role, content: textsOf(item, "content").map(partOf) };
}

function reasoningOf(item: Fields): Omit<ReasoningItem, keyof Common | "type"> {
  const summary = item.list("summary", requestLimits.contentPartsMax) ?? [];
  const texts = item.raw("content") === undefined ? [] : textsOf(item, "content");
  const encrypted = item.string("encrypted_content");
  const told = texts.length === 0 && encrypted !== undefined ? [openedReasoning(encrypted)] : texts;
  return {
    summary: summary as readonly object[],
    content: told.map((text) => ({ type: "reasoning_text", text })),
    ...(encrypted === undefined ? {} : { encrypted_content: encrypted }),
  };
}

function callOutputOf(item: Fields): Pick<CallOutputItem, "call_id" | "output"> {
  const call_id = toolCallIdOf(item, "call_id");
  const given = item.raw("output");
  if (typeof given === "string") return { call_id, output: given };
  return { call_id, output: textsOf(item, "output").map((text) => ({ type: "input_text", text })) };
}

const textTypes = ["input_text", "output_text", "reasoning_text", "summary_text", "text", "refusal"];

/** A string, or parts that are all text. */
function textsOf(item: Fields, name: string): string[] {
  const given = item.raw(name);
  if (typeof given === "string") return [given];
  const path = item.pathOf(name);
  if (!Array.isArray(given)) throw refusal(path, "a string or an array of text parts", given);
  return item.list(name, requestLimits.contentPartsMax)!.map((value, index) => {
    const part = fieldsOf(value, `${path}[${index}]`);
    const type = part.raw("type");
    if (typeof type !== "string" || !textTypes.includes(type)) {
      throw badRequest(
        `only text is supported here, but ${part.pathOf("type")} is ${quote(type)}`,
        part.pathOf("type"),
      );
    }
    return part.requiredString(type === "refusal" ? "refusal" : "text");
  });
}

function givenId(item: Fields): string | undefined {
  return item.raw("id") === undefined ? undefined : toolCallIdOf(item, "id");
}

function statusOf(item: Fields): ItemStatus {
  const status = item.raw("status") ?? "completed";
  if (status === "in_progress" || status === "completed" || status === "incomplete") return status;
  throw refusal(item.pathOf("status"), "in_progress, completed or incomplete", status);
}

const SEAL = "bunting-1:";

/**
 * Reasoning as one opaque string, for clients that keep nothing else of it. It is not a secret: the same text stands beside it in
 * `content`.
 */
export function sealedReasoning(text: string): string {
  return SEAL + Buffer.from(text).toString("base64");
}

/** "" for what another server has sealed. */
function openedReasoning(sealed: string): string {
  return sealed.startsWith(SEAL) ? Buffer.from(sealed.slice(SEAL.length), "base64").toString() : "";
}

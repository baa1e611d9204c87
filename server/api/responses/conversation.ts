/** Items as the messages that chat templates read. */
import { badRequest, quote } from "../../http/errors.ts";
import type { ChatMessage } from "../openai/inputs.ts";
import { argumentsIn, type PastToolCall } from "../openai/tools.ts";
import type { CallOutputItem, CustomCallItem, FunctionCallItem, Item } from "./items.ts";

/** The one field of a call of a custom tool, as models see it. */
export const CUSTOM_INPUT = "input";

/** The name by which a model knows a tool. */
export function modelNameOf({ name, namespace }: Pick<FunctionCallItem, "name" | "namespace">): string {
  return namespace === undefined ? name : `${namespace}__${name}`;
}

/** An assistant's message that may grow: reasoning, text and calls that stand beside one another are one message. */
interface Turn {
  readonly role: "assistant";
  content: string;
  reasoning_content?: string;
  tool_calls?: PastToolCall[];
}

/** Throws 400 for an output whose call is not there. */
export function messagesOf(instructions: string | null, items: readonly Item[]): ChatMessage[] {
  const messages: ChatMessage[] = [];
  if (instructions !== null) messages.push({ role: "system", content: instructions });
  const called = new Set<string>();
  let turn: Turn | null = null;
  const openTurn = (mayGrow: (turn: Turn) => boolean): Turn => {
    if (turn === null || !mayGrow(turn)) {
      turn = { role: "assistant", content: "" };
      messages.push(turn);
    }
    return turn;
  };
  for (const item of items) {
    switch (item.type) {
      case "message": {
        const text = item.content.map((part) => part.text).join("\n");
        if (item.role === "assistant") {
          openTurn(({ content, tool_calls }) => content === "" && tool_calls === undefined).content = text;
        } else {
          turn = null;
          messages.push({ role: item.role, content: text });
        }
        break;
      }
      case "reasoning": {
        const text = item.content.map((part) => part.text).join("\n");
        if (text === "") break;
        const own = openTurn(({ content, tool_calls }) => content === "" && tool_calls === undefined);
        own.reasoning_content =
          own.reasoning_content === undefined ? text : `${own.reasoning_content}\n${text}`;
        break;
      }
      case "function_call":
      case "custom_tool_call": {
        called.add(item.call_id);
        const own = openTurn(() => true);
        own.tool_calls = [...(own.tool_calls ?? []), pastCallOf(item)];
        break;
      }
      case "function_call_output":
      case "custom_tool_call_output":
        if (!called.has(item.call_id)) throw unpaired(item);
        turn = null;
        messages.push({ role: "tool", tool_call_id: item.call_id, content: outputTextOf(item) });
    }
  }
  return messages;
}

function pastCallOf(item: FunctionCallItem | CustomCallItem): PastToolCall {
  const values =
    item.type === "custom_tool_call"
      ? { [CUSTOM_INPUT]: item.input }
      : argumentsIn(item.arguments, `input: the arguments of the call ${item.call_id}`);
  return { id: item.call_id, type: "function", function: { name: modelNameOf(item), arguments: values } };
}

function outputTextOf({ output }: CallOutputItem): string {
  return typeof output === "string" ? output : output.map((part) => part.text).join("\n");
}

function unpaired({ type, call_id }: CallOutputItem): Error {
  const what = type === "function_call_output" ? "a function call" : "a call of a custom tool";
  return badRequest(`input holds the output of ${what} ${quote(call_id)}, but not the call`, "input");
}

/** Converts items to the messages that chat templates read. */
import { contentOf } from "../../../text/conversation/content.ts";
import type { PastCall } from "../../../text/conversation/messages.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import { pastCall, readArguments } from "../openai/past-calls.ts";
import { openedText } from "../sealed.ts";
import type { CallOutputItem, CustomCallItem, FunctionCallItem, Item } from "./items.ts";

/** The one argument of a custom tool's call, as models see it. */
export const CUSTOM_INPUT = "input";

/** Beginning of the message that a summary becomes. It is a user's, since its text comes from the client. */
const COMPACTED = "This is a summary of the conversation until here, written by you:\n\n";

/** Name of a tool as the model sees it. */
export function modelNameOf({ name, namespace }: Pick<FunctionCallItem, "name" | "namespace">): string {
  return namespace === undefined ? name : `${namespace}__${name}`;
}

/** An assistant's message under construction: adjacent reasoning, text and calls form one message. */
interface Turn {
  readonly role: "assistant";
  content: ChatMessage["content"];
  reasoning_content?: string;
  tool_calls?: PastCall[];
}

export function messagesOf(instructions: string | null, items: readonly Item[]): ChatMessage[] {
  const messages: ChatMessage[] = [];
  if (instructions !== null) messages.push({ role: "system", content: instructions });
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
        const [first, ...others] = item.content.map((part) => part.text);
        // A text that came as a string is an item's one part.
        const parts = others.length === 0 ? (first ?? "") : contentOf([first!, ...others]);
        if (item.role === "assistant") {
          openTurn(({ content, tool_calls }) => content === "" && tool_calls === undefined).content = parts;
        } else {
          turn = null;
          messages.push({ role: item.role, content: parts });
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
        const own = openTurn(() => true);
        own.tool_calls = [...(own.tool_calls ?? []), pastCallOf(item)];
        break;
      }
      case "compaction":
        turn = null;
        messages.push({
          role: "user",
          content: `${COMPACTED}${openedText(item.encrypted_content).join("")}`,
        });
        break;
      case "function_call_output":
      case "custom_tool_call_output":
        turn = null;
        messages.push({ role: "tool", ...idOf(item), content: outputOf(item) });
    }
  }
  return messages;
}

function pastCallOf(item: FunctionCallItem | CustomCallItem): PastCall {
  const values =
    item.type === "custom_tool_call" ? { [CUSTOM_INPUT]: item.input } : readArguments(item.arguments);
  return pastCall(item.call_id === "" ? undefined : item.call_id, modelNameOf(item), values);
}

/** Absent if the client leaves it out: the output then belongs to a call by its position. */
function idOf({ call_id }: CallOutputItem): { readonly tool_call_id?: string } {
  return call_id === "" ? {} : { tool_call_id: call_id };
}

function outputOf({ output }: CallOutputItem): ChatMessage["content"] {
  return typeof output === "string" ? output : contentOf(output.map((part) => part.text));
}

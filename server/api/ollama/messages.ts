/** A conversation as Ollama's clients send it, as the messages that chat templates read. */
import { badRequest } from "../../http/errors.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import type { ChatMessage } from "../openai/inputs.ts";
import { type PastToolCall, toolNameOf } from "../openai/tools.ts";
import { requestLimits } from "../request-limits.ts";

/** Calls have no ids here: results are of the calls before them, in their order. */
export function messagesOf(fields: Fields): ChatMessage[] {
  const given = fields.list("messages", requestLimits.messagesMax) ?? [];
  let calls = 0;
  let results = 0;
  return given.map((value, index): ChatMessage => {
    const message = fieldsOf(value, `messages[${index}]`);
    const role = message.raw("role");
    refuseImages(message);
    const content = message.string("content") ?? "";
    switch (role) {
      case "system":
      case "user":
        return { role, content };
      case "tool":
        message.string("tool_name");
        return { role, content, tool_call_id: `call_${results++}` };
      case "assistant": {
        const thinking = message.string("thinking");
        const made = callsOf(message, () => `call_${calls++}`);
        return {
          role,
          content,
          ...(thinking === undefined ? {} : { reasoning_content: thinking }),
          ...(made.length === 0 ? {} : { tool_calls: made }),
        };
      }
      default:
        throw refusal(message.pathOf("role"), "system, user, assistant or tool", role);
    }
  });
}

/** Throws 400: only text can be read here. */
export function refuseImages(fields: Fields): void {
  const images = fields.list("images", requestLimits.contentPartsMax) ?? [];
  if (images.length === 0) return;
  const path = fields.pathOf("images");
  throw badRequest(`${path}: this model reads text only, but ${images.length} images were given`, path);
}

function callsOf(message: Fields, nextId: () => string): PastToolCall[] {
  const given = message.list("tool_calls", requestLimits.toolCallsMax) ?? [];
  return given.map((value, index) => {
    const call = fieldsOf(value, `${message.pathOf("tool_calls")}[${index}]`);
    const made = fieldsOf(call.raw("function"), call.pathOf("function"));
    const name = toolNameOf(made);
    made.object("arguments");
    const values = (made.raw("arguments") ?? {}) as Readonly<Record<string, unknown>>;
    return { id: nextId(), type: "function", function: { name, arguments: values } };
  });
}

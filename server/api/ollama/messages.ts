/** Converts the messages of Ollama's clients to those that chat templates read. */

import type { PastCall } from "../../../text/conversation/messages.ts";
import { badRequest } from "../../http/errors.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal } from "../fields.ts";
import { pastCall, readArguments } from "../openai/past-calls.ts";
import { askedFrom, insteadOf } from "../past.ts";

/**
 * Parses `messages`. Adds to `ignored` the names of fields that it reads differently from what the client
 * sent.
 */
export function messagesOf(fields: Fields, ignored: Set<string>): ChatMessage[] {
  const list = fields.list("messages", requestLimits.messagesMax, objectKind) ?? [];
  const given = list.map((value, index) => fieldsOf(value, `messages[${index}]`));
  const from = askedFrom(given.map((message) => message.taken("role")));
  return given.map((message, index): ChatMessage => {
    const role = message.raw("role", { enum: ["system", "user", "assistant", "tool"] });
    const content = contentOf(message, role === "user" && index >= from, ignored);
    switch (role) {
      case "system":
      case "user":
        return { role, content };
      case "tool": {
        const name = message.string("tool_name") ?? message.string("name");
        const id = message.string("tool_call_id");
        return {
          role,
          content,
          ...(name === undefined ? {} : { name }),
          ...(id === undefined ? {} : { tool_call_id: id }),
        };
      }
      case "assistant": {
        const thinking = message.string("thinking");
        const made = callsOf(message);
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

/** The text, with placeholders for images. */
function contentOf(message: Fields, isAsked: boolean, ignored: Set<string>): string {
  const content = message.string("content") ?? "";
  if (isAsked) refuseImages(message);
  const images = message.list("images", requestLimits.contentPartsMax, {}) ?? [];
  if (images.length > 0) ignored.add("messages.images");
  return [content, ...images.map(() => insteadOf("image"))].filter((text) => text !== "").join("\n");
}

/** Throws 400 for images, which text models cannot read. */
export function refuseImages(fields: Fields): void {
  const images = fields.list("images", requestLimits.contentPartsMax, {}) ?? [];
  if (images.length === 0) return;
  const path = fields.pathOf("images");
  throw badRequest(`${path}: this model reads text only, but ${images.length} images were given`, path);
}

/** Past calls. Calls without ids are paired with their results by name and order. */
function callsOf(message: Fields): PastCall[] {
  const given = message.list("tool_calls", requestLimits.contentPartsMax, objectKind) ?? [];
  return given.map((value, index) => {
    const call = fieldsOf(value, `${message.pathOf("tool_calls")}[${index}]`);
    const made = fieldsOf(call.raw("function", objectKind), call.pathOf("function"));
    return pastCall(call.string("id"), made.requiredString("name"), readArguments(made.raw("arguments")));
  });
}

/** Messages and prompts in the form that all wire formats share. */
import type { TokenId } from "../../base/token.ts";
import type { PastCall, TextPart } from "../../text/conversation/messages.ts";

export interface ChatMessage {
  readonly role: Role;
  /** Text, or the parts that the client sent, for templates that read parts. */
  readonly content: string | readonly TextPart[];
  readonly name?: string;
  readonly reasoning_content?: string;
  /** Calls of an assistant's message. */
  readonly tool_calls?: readonly PastCall[];
  /** Id of the call whose result is the content, for the role tool; absent: the client names none. */
  readonly tool_call_id?: string;
}

export const roles = ["system", "developer", "user", "assistant", "tool"] as const;

export type Role = (typeof roles)[number];

/** A prompt: text or tokens. */
export type Prompt = string | readonly TokenId[];

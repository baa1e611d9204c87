/** Messages and prompts, as every wire format hands them on. */
import type { TokenId } from "../../base/token.ts";
import type { PastCall } from "../../text/conversation/messages.ts";

export interface ChatMessage {
  readonly role: Role;
  readonly content: string;
  readonly name?: string;
  readonly reasoning_content?: string;
  /** Only of assistants. */
  readonly tool_calls?: readonly PastCall[];
  /** Of the role tool: the call whose result the content is; absent: the client names none. */
  readonly tool_call_id?: string;
}

export const roles = ["system", "developer", "user", "assistant", "tool"] as const;

export type Role = (typeof roles)[number];

/** A prompt is text or tokens. */
export type Prompt = string | readonly TokenId[];

/** Messages as they are arranged for a chat template: what the fields of calls and their results hold. */
import type { ChatMessage } from "../template.ts";

/** A call that was made before, as the API hands it on. */
export interface PastCall {
  /** Absent: the wire format has none, or the client gave none. */
  readonly id?: string;
  readonly type: "function";
  readonly function: {
    readonly name: string;
    /** A text where they are no JSON object, such as those of a call that was cut off. */
    readonly arguments: Readonly<Record<string, unknown>> | string;
  };
}

export function callsOf(message: ChatMessage): readonly PastCall[] {
  return (message.tool_calls as readonly PastCall[] | undefined) ?? [];
}

/** Content as one text; nothing is "". */
export function textOf({ content }: ChatMessage): string {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part) => part.text).join("\n") : "";
}

export function thoughtsOf({ reasoning_content: thoughts }: ChatMessage): string {
  return typeof thoughts === "string" ? thoughts : "";
}

export function isSystem({ role }: ChatMessage): boolean {
  return role === "system" || role === "developer";
}

/** Those of two texts that are not empty, a blank line between them. */
export function joined(first: string, second: string): string {
  return [first, second].filter((text) => text !== "").join("\n\n");
}

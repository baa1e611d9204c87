/** Messages arranged for a chat template, with the fields of calls and their results. */

/** A past call in the form that all wire formats share. */
export interface PastCall {
  /** Absent if the wire format has none or the client sent none. */
  readonly id?: string;
  readonly type: "function";
  readonly function: {
    readonly name: string;
    /** A string if they are not a JSON object, such as those of a truncated call. */
    readonly arguments: Readonly<Record<string, unknown>> | string;
  };
}

export function callsOf(message: ChatMessage): readonly PastCall[] {
  return (message.tool_calls as readonly PastCall[] | undefined) ?? [];
}

/** Content as one text, parts on lines of their own; "" for none. */
export function textOf({ content }: Pick<ChatMessage, "content">): string {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part) => part.text).join("\n") : "";
}

export function thoughtsOf({ reasoning_content: thoughts }: ChatMessage): string {
  return typeof thoughts === "string" ? thoughts : "";
}

export function isSystem({ role }: ChatMessage): boolean {
  return role === "system" || role === "developer";
}

/** Joins two texts with a blank line between them, leaving out empty ones. */
export function joined(first: string, second: string): string {
  return [first, second].filter((text) => text !== "").join("\n\n");
}

/** A part of a message's content; text is the only kind. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

export type Content = string | readonly TextPart[] | null | undefined;

/** A message of the chat API. Further fields (name, tool_calls, …) reach the template unchanged. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: Content;
  readonly [field: string]: unknown;
}

export interface RenderOptions {
  /** True to open the assistant's turn at the end (transformers' `add_generation_prompt`). */
  readonly addGenerationPrompt: boolean;
  /**
   * True to end directly after the content of the last message, so that the completion continues it; default:
   * false.
   */
  readonly continuesLast?: boolean;
  /** Function definitions in the API's form; null or empty: none. */
  readonly tools?: readonly unknown[] | null;
  /**
   * Further template variables from the client. Reserved names are refused; names that the template does not
   * use are dropped.
   */
  readonly templateKwargs?: Readonly<Record<string, unknown>>;
}

/** Messages as they are arranged for a chat template: what the fields of calls and their results hold. */

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

/** A part of a message's content; only text is known. */
export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

/** A message as the chat API has it. Further fields (name, tool_calls, …) reach the template as they are. */
export interface ChatMessage {
  readonly role: string;
  readonly content?: string | readonly TextPart[] | null | undefined;
  readonly [field: string]: unknown;
}

export interface RenderOptions {
  /** Open the assistant's turn at the end. */
  readonly addGenerationPrompt: boolean;
  /** End right behind the content of the last message; default: false. */
  readonly continuesLast?: boolean;
  /** Function definitions as the API has them; null or empty: none. */
  readonly tools?: readonly unknown[] | null;
  /** Further template variables from the client. Our own names are refused; those the template ignores are too. */
  readonly templateKwargs?: Readonly<Record<string, unknown>>;
}

import type { ToolUse } from "../api/openai/tools.ts";
import { type AnswerPart, type ToolCall, ToolCallParser } from "../text/tool-calls.ts";

export type MessagePart =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "call"; readonly index: number; readonly id: string; readonly call: ToolCall };

/** One choice's text, in pieces or whole, as the parts of an assistant's message. */
export class MessageReader {
  /** null: no functions were offered, so everything is text. */
  readonly #parser: ToolCallParser | null;
  readonly #callsMax: number;
  readonly #idPrefix: string;
  #calls = 0;

  /** Ids of calls follow from those of the answer and the choice. They have 40 characters at most, as OpenAI's do. */
  constructor({ tools, allowsParallel }: ToolUse, answerId: string, choice: number) {
    this.#parser = tools.length > 0 ? new ToolCallParser() : null;
    this.#callsMax = allowsParallel ? Number.POSITIVE_INFINITY : 1;
    this.#idPrefix = `call_${answerId.slice(-24)}_${choice}_`;
  }

  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  push(text: string): MessagePart[] {
    if (this.#parser !== null) return this.#numbered(this.#parser.push(text));
    return text === "" ? [] : [{ kind: "text", text }];
  }

  end(): MessagePart[] {
    return this.#numbered(this.#parser?.end() ?? []);
  }

  #numbered(parts: readonly AnswerPart[]): MessagePart[] {
    return parts.flatMap((part): MessagePart[] => {
      if (part.kind === "text") return [part];
      if (this.#calls === this.#callsMax) return [];
      const index = this.#calls++;
      return [{ kind: "call", index, id: this.#idPrefix + index, call: part.call }];
    });
  }
}

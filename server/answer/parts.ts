import { ToolCallParser, type AnswerPart as UnnumberedPart } from "../text/tool-calls.ts";
import type { Part } from "./events.ts";

/** One choice's text, in pieces or whole, as parts of an answer. */
export class PartReader {
  /** null: no functions were offered, so everything is text. */
  readonly #parser: ToolCallParser | null;
  readonly #callsMax: number;
  #calls = 0;

  /** `callsMax`: calls that are told; 0 reads none. */
  constructor(callsMax: number) {
    this.#parser = callsMax > 0 ? new ToolCallParser() : null;
    this.#callsMax = callsMax;
  }

  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  push(text: string): Part[] {
    if (this.#parser !== null) return this.#numbered(this.#parser.push(text));
    return text === "" ? [] : [{ kind: "text", text }];
  }

  /** What was held back. */
  end(): Part[] {
    return this.#numbered(this.#parser?.end() ?? []);
  }

  #numbered(parts: readonly UnnumberedPart[]): Part[] {
    return parts.flatMap((part): Part[] => {
      if (part.kind === "text") return [part];
      return this.#calls === this.#callsMax ? [] : [{ ...part, index: this.#calls++ }];
    });
  }
}

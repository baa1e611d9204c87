import type { CallForm } from "../../scheduler/constraint/call-form.ts";
import type { CallableFunction } from "../../scheduler/constraint/compile.ts";
import { CallReader, type ReadPart } from "../text/formats/call-reader.ts";
import type { Part } from "./events.ts";

/** One choice's text after its thoughts, in pieces or whole, as parts of an answer. */
export class PartReader {
  readonly #reader: CallReader;
  #calls = 0;

  /** `form` is how calls of the functions are written. */
  constructor(form: CallForm, functions: readonly CallableFunction[]) {
    this.#reader = new CallReader(form, functions);
  }

  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  push(text: string): Part[] {
    return this.#numbered(this.#reader.push(text));
  }

  /** What was held back. */
  end(): Part[] {
    return this.#numbered(this.#reader.end());
  }

  #numbered(parts: readonly ReadPart[]): Part[] {
    return parts.map((part): Part => {
      if (part.kind === "text") return part;
      if (part.kind === "call") return { ...part, index: this.#calls++ };
      return { ...part, index: this.#calls - 1 };
    });
  }
}

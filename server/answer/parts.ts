import type { CallForm } from "../../scheduler/constraint/call-form.ts";
import type { CallableFunction } from "../../scheduler/constraint/compile.ts";
import { CallReader, type ReadPart } from "../text/formats/call-reader.ts";
import type { Part } from "./events.ts";

/** One choice's text after its thoughts, in pieces or whole, as parts of an answer. */
export class PartReader {
  /** Null: everything is text. */
  readonly #reader: CallReader | null;
  #calls = 0;

  /** `form` is how calls of the functions are written; null: they are not read. */
  constructor(form: CallForm | null, functions: readonly CallableFunction[]) {
    this.#reader = form === null || functions.length === 0 ? null : new CallReader(form, functions);
  }

  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  push(text: string): Part[] {
    if (this.#reader !== null) return this.#numbered(this.#reader.push(text));
    return text === "" ? [] : [{ kind: "text", text }];
  }

  /** What was held back. */
  end(): Part[] {
    return this.#numbered(this.#reader?.end() ?? []);
  }

  #numbered(parts: readonly ReadPart[]): Part[] {
    return parts.map((part): Part => {
      if (part.kind === "text") return part;
      if (part.kind === "call") return { ...part, index: this.#calls++ };
      return { ...part, index: this.#calls - 1 };
    });
  }
}

import type { CallableFunction } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { CallReader, joined, type ReadPart } from "../../text/formats/call-reader.ts";
import type { StopMatcher } from "../../text/stop.ts";
import type { Part } from "./events.ts";

/**
 * One choice's text after its thoughts, in pieces or whole, as parts of an answer. Stop strings are looked for in its text alone,
 * never in names, arguments and marks of calls, and none begins before a call and ends behind it.
 */
export class PartReader {
  /** Null: nothing is called. */
  readonly #reader: CallReader | null;
  /** Null: no text stops it. */
  readonly #stops: StopMatcher | null;
  #calls = 0;
  #matched: string | null = null;
  #cutUnits = 0;

  /** `form` is how calls of the functions are written; null: they are not. */
  constructor(form: CallForm | null, functions: readonly CallableFunction[], stops: StopMatcher | null) {
    this.#reader = form === null || functions.length === 0 ? null : new CallReader(form, functions);
    this.#stops = stops;
  }

  get hasCalls(): boolean {
    return this.#calls > 0;
  }

  /** The stop string that ended the text; null: none has. */
  get matched(): string | null {
    return this.#matched;
  }

  /** UTF-16 units that were read and are no part of the answer, since a stop string came before them. */
  get cutUnits(): number {
    return this.#cutUnits;
  }

  /** `mayStop`: stop strings count. Nothing may be pushed once one has matched. */
  push(text: string, mayStop: boolean): Part[] {
    if (this.#stops === null || !mayStop) return this.#numbered(this.#read(text));
    const told: ReadPart[] = [];
    let read = 0;
    // Scalar by scalar, so that what is read at a match is known.
    for (const piece of this.#reader === null ? [text] : text) {
      read += piece.length;
      this.#tellUpToStop(this.#stops, this.#read(piece), told);
      if (this.#matched === null) continue;
      this.#cutUnits += text.length - read + (this.#reader?.heldUnits ?? 0);
      break;
    }
    return this.#numbered(joined(told));
  }

  /** What was held back. */
  end(mayStop: boolean): Part[] {
    if (this.#matched !== null) return [];
    const rest = this.#reader?.end() ?? [];
    const stops = this.#stops;
    if (stops === null) return this.#numbered(rest);
    const told: ReadPart[] = [];
    if (mayStop) this.#tellUpToStop(stops, rest, told);
    else told.push(...rest);
    if (this.#matched === null) told.push({ kind: "text", text: stops.end() });
    return this.#numbered(joined(told));
  }

  #read(text: string): ReadPart[] {
    if (this.#reader !== null) return this.#reader.push(text);
    return text === "" ? [] : [{ kind: "text", text }];
  }

  #tellUpToStop(stops: StopMatcher, parts: readonly ReadPart[], told: ReadPart[]): void {
    for (const part of parts) {
      if (part.kind !== "text") {
        told.push({ kind: "text", text: stops.end() }, part);
        continue;
      }
      const units = stops.heldUnits + part.text.length;
      const { text, matched } = stops.push(part.text);
      told.push({ kind: "text", text });
      if (matched === null) continue;
      this.#matched = matched;
      this.#cutUnits = units - text.length;
      return;
    }
  }

  #numbered(parts: readonly ReadPart[]): Part[] {
    return parts.map((part): Part => {
      if (part.kind === "text") return part;
      if (part.kind === "call") return { ...part, index: this.#calls++ };
      return { ...part, index: this.#calls - 1 };
    });
  }
}

import type { CallableFunction } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { CallReader, joined, type ReadPart } from "../../text/formats/call-reader.ts";
import type { StopMatcher } from "../../text/stop.ts";
import type { Part } from "./events.ts";

/**
 * Parses one choice's text after its reasoning, in pieces or whole, into parts of an answer. Stop strings
 * match in the text only, never in names, arguments and delimiters of calls. No match spans a call.
 */
export class PartReader {
  /** Null: the model may call no function. */
  readonly #reader: CallReader | null;
  /** Null: the request has no stop strings. */
  readonly #stops: StopMatcher | null;
  /** Names of the functions that are called. */
  readonly #called: string[] = [];
  #matched: string | null = null;
  #cutUnits = 0;

  /** `form` is the model's call format; null: it has none. */
  constructor(form: CallForm | null, functions: readonly CallableFunction[], stops: StopMatcher | null) {
    this.#reader = form === null || functions.length === 0 ? null : new CallReader(form, functions);
    this.#stops = stops;
  }

  get called(): readonly string[] {
    return this.#called;
  }

  /** Stop string that ended the text; null: none. */
  get matched(): string | null {
    return this.#matched;
  }

  /** UTF-16 units that were read but follow the start of a stop string, and so are no part of the answer. */
  get cutUnits(): number {
    return this.#cutUnits;
  }

  /** Parses text. `mayStop`: stop strings count. Nothing may be pushed after a match. */
  push(text: string, mayStop: boolean): Part[] {
    if (this.#stops === null || !mayStop) return this.#numbered(this.#read(text));
    const emitted: ReadPart[] = [];
    let read = 0;
    // Scalar by scalar, so that the text read up to a match is known exactly.
    for (const piece of this.#reader === null ? [text] : text) {
      read += piece.length;
      this.#emitUpToStop(this.#stops, this.#read(piece), emitted);
      if (this.#matched === null) continue;
      this.#cutUnits += text.length - read + (this.#reader?.heldUnits ?? 0);
      break;
    }
    return this.#numbered(joined(emitted));
  }

  /** Ends the text. Returns the parts that were held back. */
  end(mayStop: boolean): Part[] {
    if (this.#matched !== null) return [];
    const rest = this.#reader?.end() ?? [];
    const stops = this.#stops;
    if (stops === null) return this.#numbered(rest);
    const emitted: ReadPart[] = [];
    if (mayStop) this.#emitUpToStop(stops, rest, emitted);
    else emitted.push(...rest);
    if (this.#matched === null) emitted.push({ kind: "text", text: stops.end() });
    return this.#numbered(joined(emitted));
  }

  #read(text: string): ReadPart[] {
    if (this.#reader !== null) return this.#reader.push(text);
    return text === "" ? [] : [{ kind: "text", text }];
  }

  #emitUpToStop(stops: StopMatcher, parts: readonly ReadPart[], emitted: ReadPart[]): void {
    for (const part of parts) {
      if (part.kind !== "text") {
        emitted.push({ kind: "text", text: stops.end() }, part);
        continue;
      }
      const units = stops.heldUnits + part.text.length;
      const { text, matched } = stops.push(part.text);
      emitted.push({ kind: "text", text });
      if (matched === null) continue;
      this.#matched = matched;
      this.#cutUnits = units - text.length;
      return;
    }
  }

  #numbered(parts: readonly ReadPart[]): Part[] {
    return parts.map((part): Part => {
      if (part.kind === "text") return part;
      if (part.kind === "call") return { ...part, index: this.#called.push(part.name) - 1 };
      return { ...part, index: this.#called.length - 1 };
    });
  }
}

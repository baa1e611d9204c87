import type { Parser, ParseState } from "../../grammar/parser/parser.ts";

/** Number with its spelling in the JSON text. */
export class NumberText {
  constructor(readonly text: string) {}
}

/** Property orders tried for one value at most. */
const TRIES_MAX = 20_000;

/**
 * True if the parser accepts the value with its objects' properties in some order: a constraint demands one,
 * which a model follows. Numbers may be given as NumberText.
 */
export function acceptsInAnyOrder(parser: Parser, value: unknown): boolean {
  for (const state of new Writer(parser).after(parser.start, value)) if (state.mayEnd) return true;
  return false;
}

/** Formats the value as compact JSON, with properties in their given order. */
export function written(value: unknown): string {
  if (value instanceof NumberText) return value.text;
  if (Array.isArray(value)) return `[${value.map(written).join()}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  return `{${Object.entries(value)
    .map(([name, one]) => `${JSON.stringify(name)}:${written(one)}`)
    .join()}}`;
}

class Writer {
  readonly #parser: Parser;
  #tries = 0;

  constructor(parser: Parser) {
    this.#parser = parser;
  }

  /** Yields the parser after the value, once per way to write it. */
  *after(state: ParseState, value: unknown): Generator<ParseState> {
    if (value instanceof NumberText || typeof value !== "object" || value === null) {
      yield* this.#text(state, written(value));
    } else if (Array.isArray(value)) {
      for (const open of this.#text(state, "[")) yield* this.#items(open, value, 0);
    } else {
      for (const open of this.#text(state, "{")) yield* this.#properties(open, Object.entries(value), true);
    }
  }

  *#items(state: ParseState, items: readonly unknown[], at: number): Generator<ParseState> {
    if (at === items.length) {
      yield* this.#text(state, "]");
      return;
    }
    for (const before of at === 0 ? [state] : this.#text(state, ","))
      for (const after of this.after(before, items[at])) yield* this.#items(after, items, at + 1);
  }

  *#properties(
    state: ParseState,
    left: readonly (readonly [string, unknown])[],
    isFirst: boolean,
  ): Generator<ParseState> {
    if (left.length === 0) yield* this.#text(state, "}");
    for (const [index, [name, value]] of left.entries()) {
      this.#tries += 1;
      if (this.#tries > TRIES_MAX) return;
      for (const named of this.#text(state, `${isFirst ? "" : ","}${JSON.stringify(name)}:`))
        for (const after of this.after(named, value))
          yield* this.#properties(after, left.toSpliced(index, 1), false);
    }
  }

  *#text(state: ParseState, text: string): Generator<ParseState> {
    let next: ParseState | null = state;
    for (const byte of new TextEncoder().encode(text)) {
      next = this.#parser.next(next, byte);
      if (next === null) return;
    }
    yield next;
  }
}

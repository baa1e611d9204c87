/** Large JSON, written in slices between which the thread does other work. */
import { yieldIfSpent } from "../../../base/time-slice.ts";

/**
 * List whose items are made one by one as they are written, and then dropped. JSON.stringify treats it as a
 * list too.
 */
export class LazyList<Item> {
  readonly #items: readonly Item[];
  readonly #make: (item: Item, index: number) => unknown;

  constructor(items: readonly Item[], make: (item: Item, index: number) => unknown) {
    this.#items = items;
    this.#make = make;
  }

  toJSON(): unknown[] {
    return this.#items.map((item, index) => this.#make(item, index));
  }

  *written(): Generator<string> {
    for (let index = 0; index < this.#items.length; index++)
      yield JSON.stringify(this.#make(this.#items[index]!, index));
  }
}

/** Approximate UTF-16 units per piece of a body. */
const PIECE_UNITS = 64 * 1024;
/** Numbers of an array that one call of JSON.stringify writes. */
const NUMBERS = 4096;

/** JSON text of `value`, which may hold lazy lists. */
export async function jsonText(value: object): Promise<string> {
  let text = "";
  for await (const piece of piecesOf(value)) text += piece;
  return text;
}

/** JSON response of the same values. */
export async function jsonResponse(value: object): Promise<Response> {
  const headers = { "content-type": "application/json;charset=utf-8" };
  const pieces: Uint8Array[] = [];
  for await (const piece of piecesOf(value)) pieces.push(Buffer.from(piece));
  if (pieces.length === 1) return new Response(pieces[0], { headers });
  const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const piece = pieces.shift();
      if (piece === undefined) controller.close();
      else controller.enqueue(piece);
    },
  });
  return new Response(body, { headers: { ...headers, "content-length": String(bytes) } });
}

/** At least one piece of the text; the thread does other work between pieces. */
async function* piecesOf(value: object): AsyncGenerator<string> {
  let text = "";
  for (const part of partsOf(value)) {
    text += part;
    if (text.length < PIECE_UNITS) continue;
    yield text;
    text = "";
    await yieldIfSpent();
  }
  yield text;
}

function* partsOf(value: unknown): Generator<string> {
  if (value instanceof LazyList) yield* listed(value.written());
  else if (Array.isArray(value)) {
    if (typeof value[0] === "number") yield* listed(numbersOf(value));
    else {
      let before = "[";
      for (const item of value) {
        yield before;
        yield* partsOf(item ?? null);
        before = ",";
      }
      yield before === "[" ? "[]" : "]";
    }
  } else if (typeof value === "object" && value !== null) {
    let before = "{";
    for (const [name, member] of Object.entries(value)) {
      if (member === undefined) continue;
      yield `${before}${JSON.stringify(name)}:`;
      yield* partsOf(member);
      before = ",";
    }
    yield before === "{" ? "{}" : "}";
  } else yield JSON.stringify(value);
}

function* listed(items: Iterable<string>): Generator<string> {
  let before = "[";
  for (const item of items) {
    yield before + item;
    before = ",";
  }
  yield before === "[" ? "[]" : "]";
}

function* numbersOf(list: readonly unknown[]): Generator<string> {
  for (let from = 0; from < list.length; from += NUMBERS)
    yield JSON.stringify(list.slice(from, from + NUMBERS)).slice(1, -1);
}

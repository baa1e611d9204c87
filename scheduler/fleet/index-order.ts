import { type IndexSpan, NEWER, NO_SPAN, OLDER } from "./index-span.ts";

/** Per engine, the spans that it has cached in the order in which it is expected to evict them: least recently
 *  used first, so stems after their branches. Lists through the spans' own words. */
export class IndexOrder {
  /** By id. */
  readonly #spans: readonly IndexSpan[];
  readonly #oldest: Int32Array;
  readonly #newest: Int32Array;

  constructor(spans: readonly IndexSpan[], engines: number) {
    this.#spans = spans;
    this.#oldest = new Int32Array(engines).fill(NO_SPAN);
    this.#newest = new Int32Array(engines).fill(NO_SPAN);
  }

  oldest(engine: number): IndexSpan | null {
    return this.#span(this.#oldest[engine]!);
  }

  newer(span: IndexSpan, engine: number): IndexSpan | null {
    return this.#span(span.neighbour(NEWER, engine));
  }

  append(span: IndexSpan, engine: number): void {
    this.#insert(span, engine, this.#newest[engine]!, NO_SPAN);
  }

  /** Puts `span` right after `older`. */
  insertAfter(older: IndexSpan, span: IndexSpan, engine: number): void {
    this.#insert(span, engine, older.id, older.neighbour(NEWER, engine));
  }

  remove(span: IndexSpan, engine: number): void {
    this.#join(span.neighbour(OLDER, engine), span.neighbour(NEWER, engine), engine);
  }

  #insert(span: IndexSpan, engine: number, older: number, newer: number): void {
    this.#join(older, span.id, engine);
    this.#join(span.id, newer, engine);
  }

  #join(older: number, newer: number, engine: number): void {
    if (older === NO_SPAN) this.#oldest[engine] = newer;
    else this.#spans[older]!.setNeighbour(NEWER, engine, newer);
    if (newer === NO_SPAN) this.#newest[engine] = older;
    else this.#spans[newer]!.setNeighbour(OLDER, engine, older);
  }

  #span(id: number): IndexSpan | null {
    return id === NO_SPAN ? null : this.#spans[id]!;
  }
}

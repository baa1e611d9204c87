/** What a span counts per engine: words[kind × engines + engine]. */
const CACHED = 0;
const PROMISED = 1;
const READERS = 2;
const HITS = 3;
const HITS_BEFORE = 4;
export const OLDER = 5;
export const NEWER = 6;
const KINDS = 7;

/** No span: the end of an eviction order. */
export const NOBODY = -1;

/**
 * A node of the prefix index: pages [first, end) of every path through it, and who has them.
 *
 * An engine has the leading `cached` pages of a span, and those of its parent all, if any of the span: engines
 * evict from the tail. A promise is about the whole span: a sequence that was placed on the engine, and has not
 * told its first token yet, will have it computed. From then on, until its end, it is a reader.
 */
export class IndexSpan {
  /** Number in the index; given to another when the span is removed. */
  readonly id: number;
  parent: IndexSpan | null;
  first: number;
  /** One per page (page-hash.ts). */
  hashes: Float64Array;
  /** By hash of the first page; null: none. */
  children: Map<number, IndexSpan> | null = null;
  /** Promises and readers on all engines: while there are any, the span stays whole. */
  sequences = 0;
  /** Number of the last look-up that found it. */
  look = 0;
  readonly #engines: number;
  readonly #words: Int32Array;
  #hitsSinceMs = 0;

  constructor(id: number, parent: IndexSpan | null, first: number, hashes: Float64Array, engines: number) {
    this.id = id;
    this.parent = parent;
    this.first = first;
    this.hashes = hashes;
    this.#engines = engines;
    this.#words = new Int32Array(KINDS * engines);
  }

  get pages(): number {
    return this.hashes.length;
  }

  get end(): number {
    return this.first + this.hashes.length;
  }

  /** Leading pages that the engine has cached. */
  cached(engine: number): number {
    return this.#words[CACHED * this.#engines + engine]!;
  }

  /** Leading pages that the engine has, or will have. */
  held(engine: number): number {
    return this.promised(engine) > 0 ? this.pages : this.cached(engine);
  }

  promised(engine: number): number {
    return this.#words[PROMISED * this.#engines + engine]!;
  }

  setCached(engine: number, pages: number): void {
    this.#words[CACHED * this.#engines + engine] = pages;
  }

  addPromise(engine: number, count: 1 | -1): void {
    this.sequences += count;
    this.#words[PROMISED * this.#engines + engine]! += count;
  }

  /** Sequences there that have their first token, and have not ended. */
  readers(engine: number): number {
    return this.#words[READERS * this.#engines + engine]!;
  }

  addReader(engine: number, count: 1 | -1): void {
    this.sequences += count;
    this.#words[READERS * this.#engines + engine]! += count;
  }

  /** Leading pages that an engine has, or will have. */
  needed(): number {
    if (this.sequences > 0) return this.pages;
    let most = 0;
    for (let engine = 0; engine < this.#engines; engine++) most = Math.max(most, this.cached(engine));
    return most;
  }

  /** Keeps the leading `pages` pages. */
  cut(pages: number): void {
    if (pages < this.hashes.length) this.hashes = this.hashes.slice(0, pages);
  }

  /** A sequence that passes through here was placed on the engine. */
  hit(engine: number, nowMs: number, windowMs: number): void {
    this.#roll(nowMs, windowMs);
    this.#words[HITS * this.#engines + engine]! += 1;
  }

  /** Hits of about the last `windowMs` on one engine (as WindowSum, which would be too large here). */
  hits(engine: number, nowMs: number, windowMs: number): number {
    this.#roll(nowMs, windowMs);
    const left = 1 - (nowMs - this.#hitsSinceMs) / windowMs;
    return (
      this.#words[HITS * this.#engines + engine]! + left * this.#words[HITS_BEFORE * this.#engines + engine]!
    );
  }

  /** Id of the neighbour in the engine's eviction order. */
  neighbour(side: typeof OLDER | typeof NEWER, engine: number): number {
    return this.#words[side * this.#engines + engine]!;
  }

  setNeighbour(side: typeof OLDER | typeof NEWER, engine: number, id: number): void {
    this.#words[side * this.#engines + engine] = id;
  }

  /** Becomes the lower part, from page `first + pages` on, and makes `upper`, new and empty, the upper part. Their
   *  places in the eviction orders are the index's business. */
  splitInto(upper: IndexSpan, pages: number): void {
    upper.#words.set(this.#words);
    upper.#hitsSinceMs = this.#hitsSinceMs;
    upper.sequences = this.sequences;
    this.hashes = this.hashes.slice(pages);
    this.first += pages;
    for (let engine = 0; engine < this.#engines; engine++) {
      const cached = this.cached(engine);
      upper.#words[CACHED * this.#engines + engine] = Math.min(cached, pages);
      this.setCached(engine, Math.max(0, cached - pages));
    }
  }

  #roll(nowMs: number, windowMs: number): void {
    const elapsed = nowMs - this.#hitsSinceMs;
    if (elapsed < windowMs) return;
    const before = HITS_BEFORE * this.#engines;
    if (elapsed < 2 * windowMs) this.#words.copyWithin(before, HITS * this.#engines, before);
    else this.#words.fill(0, before, before + this.#engines);
    this.#words.fill(0, HITS * this.#engines, before);
    this.#hitsSinceMs = nowMs - (elapsed % windowMs);
  }
}

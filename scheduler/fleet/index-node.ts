/** Words of a holder, an engine that has or will have some of the node: [at, at + KINDS). */
const ENGINE = 0;
const CACHED = 1;
const IN_FLIGHT = 2;
const READERS = 3;
const HITS = 4;
const HITS_BEFORE = 5;
export const OLDER = 6;
export const NEWER = 7;
const KINDS = 8;

/** Words that `readEviction` writes. */
export const EVICTABLE = 0;
export const FIRST = 1;
export const HITS_NOW = 2;
export const HITS_THEN = 3;
export const SINCE_MS = 4;
export const FRONT_WORDS = 5;

/** No node: the end of an eviction order. */
export const NO_NODE = -1;

const nothing = new Int32Array(0);

/**
 * A node of the prefix index: pages [first, end) of every path through it, and the engines that have them.
 *
 * An engine has the leading `cached` pages of a node. If it has any, it has all pages of the parent, since engines
 * evict from the tail. A sequence that was placed on the engine and has no token yet is in flight: it will compute
 * the whole node. From its first token until its end it is a reader. A holder is an engine with pages, in-flight
 * sequences or readers.
 */
export class IndexNode {
  /** Number in the index; given to another when the node is removed. */
  readonly id: number;
  parent: IndexNode | null;
  first: number;
  /** Hashes of its pages (page-hash.ts). */
  hashes: Float64Array;
  /** Children by the hash of their first page; null: none. */
  children: Map<number, IndexNode> | null = null;
  /** Number of in-flight sequences and readers on all engines; with any, the node stays whole. */
  sequences = 0;
  /** Number of the last look-up that found the node. */
  look = 0;
  /** Number of eviction fronts that have a copy of it, usually none. */
  copies = 0;
  /** Number of holders. */
  #holders = 0;
  /** Words of the holders, in order of engines; room for more may follow. */
  #words = nothing;
  #hitsSinceMs = 0;

  constructor(id: number, parent: IndexNode | null, first: number, hashes: Float64Array) {
    this.id = id;
    this.parent = parent;
    this.first = first;
    this.hashes = hashes;
  }

  get pages(): number {
    return this.hashes.length;
  }

  get end(): number {
    return this.first + this.hashes.length;
  }

  get holders(): number {
    return this.#holders;
  }

  /** The engine that is holder number `index` < holders, in order of engines. */
  holder(index: number): number {
    return this.#words[index * KINDS + ENGINE]!;
  }

  /** Leading pages that the engine has cached. */
  cached(engine: number): number {
    return this.#word(engine, CACHED);
  }

  inFlight(engine: number): number {
    return this.#word(engine, IN_FLIGHT);
  }

  /** Sequences there that have their first token, and have not ended. */
  readers(engine: number): number {
    return this.#word(engine, READERS);
  }

  /**
   * Adds this node's pages to `found` for each holder that has all pages before `first`. `common` leading
   * pages of the node match the path. `found` counts pages that are cached or in flight; `cached` counts
   * cached ones only.
   */
  addFound(found: Int32Array, cached: Int32Array, common: number): void {
    const words = this.#words;
    for (let at = 0; at < this.#holders * KINDS; at += KINDS) {
      const engine = words[at + ENGINE]!;
      if (found[engine] !== this.first) continue;
      const pages = Math.min(words[at + CACHED]!, common);
      if (cached[engine] === this.first) cached[engine]! += pages;
      found[engine]! += words[at + IN_FLIGHT]! > 0 ? common : pages;
    }
  }

  setCached(engine: number, pages: number): void {
    const at = pages > 0 ? this.#ensure(engine) : this.#find(engine);
    if (at < 0) return;
    this.#words[at + CACHED] = pages;
    this.#dropIdle(at);
  }

  countInFlight(engine: number, count: 1 | -1): void {
    this.#addSequence(engine, IN_FLIGHT, count);
  }

  addReader(engine: number, count: 1 | -1): void {
    this.#addSequence(engine, READERS, count);
  }

  /** Number of leading pages that some engine has or will have. */
  needed(): number {
    if (this.sequences > 0) return this.pages;
    let most = 0;
    for (let at = 0; at < this.#holders * KINDS; at += KINDS)
      most = Math.max(most, this.#words[at + CACHED]!);
    return most;
  }

  /** Cuts the node to its leading `pages` pages. */
  cut(pages: number): void {
    if (pages < this.hashes.length) this.hashes = this.hashes.slice(0, pages);
  }

  /** Counts in-flight sequences on a holder. */
  hit(engine: number, nowMs: number, windowMs: number): void {
    this.#roll(nowMs, windowMs);
    this.#words[this.#find(engine) + HITS]! += 1;
  }

  /**
   * Writes the node's fields for an eviction estimate on a holder, as `FRONT_WORDS` words from `at` on: evictable
   * leading pages (0 while a sequence reads or will read them), index of the first page, hits in this window and in
   * the one before, and the start of this window. A `WindowSum` per holder would take more memory.
   */
  readEviction(engine: number, nowMs: number, windowMs: number, into: Float64Array, at: number): void {
    this.#roll(nowMs, windowMs);
    const from = this.#find(engine);
    const words = this.#words;
    const isNeeded = words[from + IN_FLIGHT]! > 0 || words[from + READERS]! > 0;
    into[at + EVICTABLE] = isNeeded ? 0 : words[from + CACHED]!;
    into[at + FIRST] = this.first;
    into[at + HITS_NOW] = words[from + HITS]!;
    into[at + HITS_THEN] = words[from + HITS_BEFORE]!;
    into[at + SINCE_MS] = this.#hitsSinceMs;
  }

  /** Id of a neighbour in the eviction order of an engine that has some of the node cached. */
  neighbour(side: typeof OLDER | typeof NEWER, engine: number): number {
    return this.#words[this.#find(engine) + side]!;
  }

  setNeighbour(side: typeof OLDER | typeof NEWER, engine: number, id: number): void {
    this.#words[this.#find(engine) + side] = id;
  }

  /**
   * Moves the first `pages` pages to `upper`, which is new and empty, with a copy of the holders. This node
   * keeps the rest. The caller then calls `setCached` on it, since the index owns the eviction orders.
   */
  splitInto(upper: IndexNode, pages: number): void {
    upper.#holders = this.#holders;
    upper.#words = this.#words.slice(0, this.#holders * KINDS);
    upper.#hitsSinceMs = this.#hitsSinceMs;
    upper.sequences = this.sequences;
    this.hashes = this.hashes.slice(pages);
    this.first += pages;
    const words = upper.#words;
    for (let at = 0; at < words.length; at += KINDS)
      words[at + CACHED] = Math.min(words[at + CACHED]!, pages);
  }

  #word(engine: number, kind: number): number {
    const at = this.#find(engine);
    return at < 0 ? 0 : this.#words[at + kind]!;
  }

  #addSequence(engine: number, kind: typeof IN_FLIGHT | typeof READERS, count: 1 | -1): void {
    this.sequences += count;
    const at = this.#ensure(engine);
    this.#words[at + kind]! += count;
    this.#dropIdle(at);
  }

  /** Index of the engine's words; -1 - the index to insert them at if there are none. */
  #find(engine: number): number {
    const words = this.#words;
    let low = 0;
    let high = this.#holders;
    while (low < high) {
      const middle = (low + high) >> 1;
      const other = words[middle * KINDS + ENGINE]!;
      if (other === engine) return middle * KINDS;
      if (other < engine) low = middle + 1;
      else high = middle;
    }
    return -1 - low * KINDS;
  }

  /** Index of the engine's words; makes it a holder if it is none. */
  #ensure(engine: number): number {
    const found = this.#find(engine);
    if (found >= 0) return found;
    const at = -1 - found;
    const used = this.#holders * KINDS;
    if (used === this.#words.length) {
      const words = new Int32Array(Math.max(KINDS, 2 * used));
      words.set(this.#words);
      this.#words = words;
    }
    this.#words.copyWithin(at + KINDS, at, used);
    this.#words.fill(0, at, at + KINDS);
    this.#words[at + ENGINE] = engine;
    this.#holders += 1;
    return at;
  }

  /** Removes a holder that has nothing here and nothing in flight. */
  #dropIdle(at: number): void {
    const words = this.#words;
    if (words[at + CACHED]! > 0 || words[at + IN_FLIGHT]! > 0 || words[at + READERS]! > 0) return;
    words.copyWithin(at, at + KINDS, this.#holders * KINDS);
    this.#holders -= 1;
  }

  #roll(nowMs: number, windowMs: number): void {
    const elapsed = nowMs - this.#hitsSinceMs;
    if (elapsed < windowMs) return;
    const words = this.#words;
    for (let at = 0; at < this.#holders * KINDS; at += KINDS) {
      words[at + HITS_BEFORE] = elapsed < 2 * windowMs ? words[at + HITS]! : 0;
      words[at + HITS] = 0;
    }
    this.#hitsSinceMs = nowMs - (elapsed % windowMs);
  }
}

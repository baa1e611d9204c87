import { assert } from "../base/assert.ts";
import type { Clock } from "../base/clock.ts";
import { SeededRandom } from "../base/random.ts";
import type { LoadDone, LowerTier, PagesOf, TierCosts } from "../scheduler/cache/lower-tier.ts";
import { hashPrompt } from "../scheduler/cache/page-hash.ts";
import type { PageId, StateSlot } from "../scheduler/core.ts";

/** Sizes and speeds of a simulated tier. */
export interface TierSetup {
  readonly pageBytes: number;
  readonly pageTokens: number;
  /** Pages that a recurrent state takes; absent: states are not stored. */
  readonly statePages?: number;
  /** Speed of the disk; loads and writes share it, one after the other. */
  readonly bytesPerMs: number;
  readonly latencyMs: number;
  /** Speed of copies from the device to the write buffer. */
  readonly copiedBytesPerMs: number;
  /** Maximum pages that wait to be written. */
  readonly waitingPagesMax: number;
  /** Pages of a segment; a full tier drops its oldest segment. */
  readonly segmentPages: number;
  readonly segmentsMax: number;
  /** Probability that a page or state piece turns out to be lost when it is read, 0 … 1. */
  readonly lostShare: number;
  readonly seed: number;
}

/** Access to the contents of a device's pages and state slots. */
export interface PageMemory<Contents> {
  read(page: PageId): Contents;
  write(page: PageId, contents: Contents): void;
  /** Marks a page as never written, while it is being loaded. */
  spoil(page: PageId): void;
  readState(slot: StateSlot): Contents;
  writeState(slot: StateSlot, contents: Contents): void;
  spoilState(slot: StateSlot): void;
}

/** Key of a page: its hash. Key of a state piece: the hash of the last page before it, and its number. */
type Key = number | string;

interface Stored<Contents> {
  readonly contents: Contents | null;
  readonly segment: number;
}

/**
 * Lower tier in virtual time. Stores page contents if `memory` (of a device with page contents) is given;
 * otherwise it only takes time. It outlives the engines that use it, as a disk does.
 */
export class SimulatedTier<Contents = never> implements LowerTier {
  readonly costs: TierCosts;
  readonly #setup: TierSetup;
  readonly #clock: Clock;
  readonly #memory: PageMemory<Contents> | null;
  readonly #random: SeededRandom;
  readonly #stored = new Map<Key, Stored<Contents>>();
  /** Pages and pieces of each segment; the last one is open. */
  readonly #segments = new Map<number, Key[]>([[0, []]]);
  #segment = 0;
  readonly #hashes = new WeakMap<PagesOf, Float64Array>();
  /** Time at which the disk has finished everything requested so far. */
  #freeMs = 0;

  constructor(setup: TierSetup, clock: Clock, memory: PageMemory<Contents> | null = null) {
    const { pageBytes, statePages = 0, bytesPerMs, latencyMs, copiedBytesPerMs, seed } = setup;
    this.#setup = setup;
    this.#clock = clock;
    this.#memory = memory;
    this.#random = new SeededRandom(seed);
    this.costs = {
      pageBytes,
      statePages,
      latencyMs,
      loadPageMs: pageBytes / bytesPerMs,
      storePageMs: pageBytes / copiedBytesPerMs,
    };
  }

  /** Number of stored pages and state pieces. */
  get size(): number {
    return this.#stored.size;
  }

  has(key: Key): boolean {
    return this.#stored.has(key);
  }

  /**
   * Stores a page or piece by its key, and calls `done` when it is written; false: too many wait to be
   * written.
   */
  put(key: Key, contents: Contents | null, done: () => void): boolean {
    const { loadPageMs } = this.costs;
    const waitMs = this.#freeMs - this.#clock.nowMs();
    if (waitMs > this.#setup.waitingPagesMax * loadPageMs) return false;
    this.#clock.after(this.#take(loadPageMs) - this.#clock.nowMs(), () => {
      this.#add(key, contents);
      done();
    });
    return true;
  }

  /**
   * Reads pages or pieces. Calls `each` for those that can be read, then `done` with how many from the first
   * on could be.
   */
  get(
    keys: readonly Key[],
    each: (index: number, contents: Contents | null) => void,
    done: (right: number) => void,
  ): void {
    const endMs = this.#take(keys.length * this.costs.loadPageMs) + this.#setup.latencyMs;
    this.#clock.after(endMs - this.#clock.nowMs(), () => {
      for (const [index, key] of keys.entries()) {
        const found = this.#read(key);
        if (found === null) return done(index);
        each(index, found.contents);
      }
      done(keys.length);
    });
  }

  find(prompt: PagesOf, first: number): number {
    const hashes = this.#hashesOf(prompt);
    let end = first;
    while (end < hashes.length && this.#stored.has(hashes[end]!)) end += 1;
    return end;
  }

  findState(prompt: PagesOf, first: number, end: number): number {
    const { statePages } = this.costs;
    for (let at = end; at > first; at -= 1) {
      const pieces = this.#pieces(prompt, at, 0, statePages);
      if (pieces.every((piece) => this.#stored.has(piece))) return at;
    }
    return first;
  }

  loadPageMs(): number {
    return this.costs.loadPageMs;
  }

  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number {
    const hashes = this.#hashesOf(prompt).subarray(first, first + pages.length);
    return this.#store([...hashes], (index) => this.#memory?.read(pages[index]!) ?? null);
  }

  storeState(prompt: PagesOf, end: number, slot: StateSlot, first: number, count: number): number {
    assert(first + count <= this.costs.statePages, "a state has so many pieces");
    const pieces = this.#pieces(prompt, end, first, count);
    return this.#store(pieces, () => this.#memory?.readState(slot) ?? null);
  }

  load(
    prompt: PagesOf,
    first: number,
    pages: readonly PageId[],
    slot: StateSlot | null,
    done: LoadDone,
  ): void {
    const hashes = this.#hashesOf(prompt);
    const { statePages, loadPageMs } = this.costs;
    const pieces = slot === null ? [] : this.#pieces(prompt, first + pages.length, 0, statePages);
    for (const page of pages) this.#memory?.spoil(page);
    if (slot !== null) this.#memory?.spoilState(slot);
    const endMs = this.#take((pages.length + pieces.length) * loadPageMs) + this.#setup.latencyMs;
    this.#clock.after(endMs - this.#clock.nowMs(), () => {
      let right = 0;
      for (; right < pages.length; right++) {
        const found = this.#read(hashes[first + right]!);
        if (found === null) return done(right, 0);
        this.#memory?.write(pages[right]!, found.contents!);
      }
      const found = pieces.map((piece) => this.#read(piece));
      if (slot === null || found.includes(null)) return done(right, 0);
      this.#memory?.writeState(slot, wholeOf(found.map((piece) => piece!.contents!)));
      done(right + 1, 0);
    });
  }

  /** Stores missing pages or pieces; returns how many, from the first on, are stored then. */
  #store(keys: readonly Key[], contentsOf: (index: number) => Contents | null): number {
    const { waitingPagesMax } = this.#setup;
    const { loadPageMs } = this.costs;
    for (const [index, key] of keys.entries()) {
      if (this.#stored.has(key)) continue;
      if (this.#freeMs - this.#clock.nowMs() > waitingPagesMax * loadPageMs) return index;
      this.#take(loadPageMs);
      this.#add(key, contentsOf(index));
    }
    return keys.length;
  }

  /** Returns a stored page or piece; null: it is absent, or cannot be read back. */
  #read(key: Key): Stored<Contents> | null {
    const found = this.#stored.get(key);
    if (found === undefined) return null;
    if (this.#random.unit() >= this.#setup.lostShare) return found;
    this.#stored.delete(key);
    return null;
  }

  #pieces(prompt: PagesOf, end: number, first: number, count: number): Key[] {
    const hash = this.#hashesOf(prompt)[end - 1]!;
    return Array.from({ length: count }, (_, index) => `${hash} ${first + index}`);
  }

  /** Occupies the disk for `ms` after everything requested before. Returns the end. */
  #take(ms: number): number {
    this.#freeMs = Math.max(this.#freeMs, this.#clock.nowMs()) + ms;
    return this.#freeMs;
  }

  #add(key: Key, contents: Contents | null): void {
    const { segmentPages, segmentsMax } = this.#setup;
    const open = this.#segments.get(this.#segment)!;
    open.push(key);
    this.#stored.set(key, { contents, segment: this.#segment });
    if (open.length < segmentPages) return;
    this.#segment += 1;
    this.#segments.set(this.#segment, []);
    if (this.#segments.size <= segmentsMax) return;
    const [oldest, keys] = this.#segments.entries().next().value!;
    this.#segments.delete(oldest);
    for (const old of keys) if (this.#stored.get(old)?.segment === oldest) this.#stored.delete(old);
  }

  #hashesOf(prompt: PagesOf): Float64Array {
    let hashes = this.#hashes.get(prompt);
    if (hashes !== undefined) return hashes;
    const { pageTokens } = this.#setup;
    const pages = Math.floor(prompt.tokens.length / pageTokens);
    hashes = hashPrompt(prompt.tokens, pages, pageTokens, prompt.sharing);
    this.#hashes.set(prompt, hashes);
    return hashes;
  }
}

/**
 * The state that these pieces belong to. Each piece has the whole state, so that a mix of states is detected.
 */
export function wholeOf<Contents>(pieces: readonly Contents[]): Contents {
  const [first] = pieces;
  assert(
    pieces.every((piece) => JSON.stringify(piece) === JSON.stringify(first)),
    "the pieces of a state belong together",
  );
  return first!;
}

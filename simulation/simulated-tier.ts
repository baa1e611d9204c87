import type { Clock } from "../base/clock.ts";
import { SeededRandom } from "../base/random.ts";
import type { LowerTier, PagesOf, TierCosts } from "../scheduler/cache/lower-tier.ts";
import { hashPrompt } from "../scheduler/cache/page-hash.ts";
import type { PageId } from "../scheduler/core.ts";

/** Sizes and speeds of a simulated tier. */
export interface TierSetup {
  readonly pageBytes: number;
  readonly pageTokens: number;
  /** Loads and writes share one disk, one after the other. */
  readonly bytesPerMs: number;
  readonly latencyMs: number;
  /** Speed of the copies off the device. */
  readonly copiedBytesPerMs: number;
  /** Pages that may wait to be written. */
  readonly waitingPagesMax: number;
  /** A tier that is full drops its oldest segment. */
  readonly segmentPages: number;
  readonly segmentsMax: number;
  /** Share of the loaded pages that turn out to be lost. */
  readonly lostShare: number;
  readonly seed: number;
}

/** The contents of a device's pages. */
export interface PageMemory<Contents> {
  read(page: PageId): Contents;
  write(page: PageId, contents: Contents): void;
  /** Spoils a page that is being loaded. */
  spoil(page: PageId): void;
}

interface Stored<Contents> {
  readonly contents: Contents | null;
  readonly segment: number;
}

/**
 * Lower tier in virtual time. With the `memory` of a device that has page contents it keeps those; without, it
 * only takes time. It outlives the engines that use it, as a disk does.
 */
export class SimulatedTier<Contents = never> implements LowerTier {
  readonly costs: TierCosts;
  readonly #setup: TierSetup;
  readonly #clock: Clock;
  readonly #memory: PageMemory<Contents> | null;
  readonly #random: SeededRandom;
  /** Pages by their hash. */
  readonly #stored = new Map<number, Stored<Contents>>();
  /** Hashes of the pages of each segment; the last one is open. */
  readonly #segments = new Map<number, number[]>([[0, []]]);
  #segment = 0;
  readonly #hashes = new WeakMap<PagesOf, Float64Array>();
  /** The time at which the disk has done all that it was given. */
  #freeMs = 0;

  constructor(setup: TierSetup, clock: Clock, memory: PageMemory<Contents> | null = null) {
    const { pageBytes, bytesPerMs, latencyMs, copiedBytesPerMs, seed } = setup;
    this.#setup = setup;
    this.#clock = clock;
    this.#memory = memory;
    this.#random = new SeededRandom(seed);
    this.costs = {
      pageBytes,
      latencyMs,
      loadPageMs: pageBytes / bytesPerMs,
      storePageMs: pageBytes / copiedBytesPerMs,
    };
  }

  /** Pages that it has. */
  get size(): number {
    return this.#stored.size;
  }

  find(prompt: PagesOf, first: number): number {
    const hashes = this.#hashesOf(prompt);
    let end = first;
    while (end < hashes.length && this.#stored.has(hashes[end]!)) end += 1;
    return end;
  }

  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number {
    const hashes = this.#hashesOf(prompt);
    const { waitingPagesMax } = this.#setup;
    const { loadPageMs } = this.costs;
    for (const [index, page] of pages.entries()) {
      const hash = hashes[first + index]!;
      if (this.#stored.has(hash)) continue;
      if (this.#freeMs - this.#clock.nowMs() > waitingPagesMax * loadPageMs) return index;
      this.#take(loadPageMs);
      this.#add(hash, this.#memory?.read(page) ?? null);
    }
    return pages.length;
  }

  load(prompt: PagesOf, first: number, pages: readonly PageId[], done: (right: number) => void): void {
    const hashes = this.#hashesOf(prompt);
    for (const page of pages) this.#memory?.spoil(page);
    const endMs = this.#take(pages.length * this.costs.loadPageMs) + this.#setup.latencyMs;
    this.#clock.after(endMs - this.#clock.nowMs(), () => {
      let right = 0;
      for (; right < pages.length; right++) {
        const hash = hashes[first + right]!;
        const found = this.#stored.get(hash);
        if (found === undefined) break;
        if (this.#random.unit() < this.#setup.lostShare) {
          this.#stored.delete(hash);
          break;
        }
        if (this.#memory !== null) this.#memory.write(pages[right]!, found.contents!);
      }
      done(right);
    });
  }

  /** Occupies the disk for `ms` after all that it was given before. Returns the end. */
  #take(ms: number): number {
    this.#freeMs = Math.max(this.#freeMs, this.#clock.nowMs()) + ms;
    return this.#freeMs;
  }

  #add(hash: number, contents: Contents | null): void {
    const { segmentPages, segmentsMax } = this.#setup;
    const open = this.#segments.get(this.#segment)!;
    open.push(hash);
    this.#stored.set(hash, { contents, segment: this.#segment });
    if (open.length < segmentPages) return;
    this.#segment += 1;
    this.#segments.set(this.#segment, []);
    if (this.#segments.size <= segmentsMax) return;
    const [oldest, hashes] = this.#segments.entries().next().value!;
    this.#segments.delete(oldest);
    for (const old of hashes) if (this.#stored.get(old)?.segment === oldest) this.#stored.delete(old);
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

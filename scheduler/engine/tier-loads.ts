import { assert } from "../../base/assert.ts";
import type { Clock } from "../../base/clock.ts";
import { part } from "../../base/part.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import type { LowerTier, PagesOf } from "../cache/lower-tier.ts";
import { computeMs, delayedBy } from "../cache/tier-prices.ts";
import { type PageId, sequenceOfHint, sharingOf } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import { findInFlightPrefix, type InFlightPrefix } from "./queue/in-flight-prefixes.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import { Sequence } from "./sequence.ts";

/** Loads in flight at most. */
const LOADS_MAX = 8;
/** Tier lookups, and comparisons with loads in flight, per step at most, as each reads a whole prompt. */
const LOOKUPS_MAX = 8;
const COMPARED_MAX = 16;
/** Loads per stay of a sequence in the queue at most: its pages may be evicted again before its turn. */
const TRIES_MAX = 2;

/** A waiting sequence, and the result of the tier's last lookup. Page counts are -1 before the first lookup. */
interface Known {
  readonly prompt: PagesOf;
  /** Pages that the prefix cache had at the lookup: the tier was asked for the pages from here on. */
  first: number;
  /** Pages of these that need no prefill: those before the last checkpoint if the model has recurrent layers. */
  usable: number;
  /** Pages that need no prefill once the tier's pages are loaded. */
  end: number;
  /** Milliseconds to load one of them. */
  pageMs: number;
  tries: number;
  /** Tokens of finished loads for it, and those of them from the host's memory. */
  tokens: number;
  hostTokens: number;
}

/** Tokens of a sequence that were loaded for it. */
export interface LoadedTokens {
  readonly tokens: number;
  /** Tokens among them from the host's memory. */
  readonly hostTokens: number;
}

const nothing: LoadedTokens = { tokens: 0, hostTokens: 0 };

/** A load in flight. `owner` is a placeholder that holds its pages, as a running sequence would. */
interface Load {
  readonly owner: Sequence;
  readonly pages: number;
  /** The time at which it is expected to end. */
  readonly endMs: number;
  /** Time at which its waiting sequences give up and compute their prompts. */
  readonly lateMs: number;
  isLate: boolean;
  readonly readers: Set<Sequence>;
}

/** The parts of an engine that its loads use. */
export interface TierLoadsParts {
  readonly tier: LowerTier;
  readonly clock: Clock;
  readonly costs: CostModel;
  readonly kvCache: KvCacheManager;
  readonly queue: WaitQueue;
  /** Called after a load has ended. */
  readonly onDone: () => void;
}

/**
 * Loads of KV pages from the lower tier, for sequences that wait or are expected. A load allocates pages like a
 * sequence with the same prompt, and the cache takes over those that the tier has verified. Waiting sequences then
 * find them cached; one whose turn comes earlier is parked as for an in-flight prefix.
 *
 * A load pays if it takes less time than all waiting sequences together would lose by the prefill. Ahead of a
 * sequence's turn it takes only pages that no waiting sequence will read. A load is late if it takes longer than
 * load and prefill were expected to take together. Its sequences then compute their prompts, and no other load
 * begins until it ends.
 */
export class TierLoads {
  readonly #parts: TierLoadsParts;
  /** Sequences that wait and are not paused, in order of arrival. */
  readonly #known = new Map<Sequence, Known>();
  /** Readers of prefix hints, in order of arrival: sequences to come. */
  readonly #expected = new Map<Sequence, Known>();
  readonly #loads = new Set<Load>();
  #pagesFound = 0;
  #pagesLoaded = 0;
  #pagesFromHost = 0;
  #short = 0;

  constructor(parts: TierLoadsParts) {
    this.#parts = parts;
  }

  /**
   * Totals: pages that lookups found beyond the prefix cache, pages loaded, those of them from the host's memory,
   * and loads that ended short.
   */
  get totals() {
    const [pagesFound, pagesLoaded, pagesFromHost] = [
      this.#pagesFound,
      this.#pagesLoaded,
      this.#pagesFromHost,
    ];
    return { pagesFound, pagesLoaded, pagesFromHost, short: this.#short };
  }

  /** True if no load is in flight. */
  get isIdle(): boolean {
    return this.#loads.size === 0;
  }

  /** The time at which the next load in flight is late; null: never. */
  get lateMs(): number | null {
    const times = [...this.#loads].flatMap(({ isLate, lateMs }) => (isLate ? [] : [lateMs]));
    return times.length === 0 ? null : Math.min(...times);
  }

  /**
   * Returns sequences that wait for a late load to the queue. The load keeps its pages until it ends, as the tier
   * may still write them.
   */
  giveUp(): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const load of this.#loads) {
      if (load.isLate || nowMs < load.lateMs) continue;
      load.isLate = true;
      this.#parts.queue.wake(load.owner, Number.POSITIVE_INFINITY);
    }
  }

  /** True if no load may begin: there are many, or the tier may be stuck. */
  get #isFull(): boolean {
    return this.#loads.size === LOADS_MAX || [...this.#loads].some(({ isLate }) => isLate);
  }

  /** The sequences that hold the pages of loads in flight. */
  get owners(): readonly Sequence[] {
    return [...this.#loads].map(({ owner }) => owner);
  }

  /** Records that a sequence waits in the queue. */
  waits(sequence: Sequence): void {
    this.#add(this.#known, sequence, sequence.cachedMax);
  }

  /** Records that a sequence is expected whose prompt begins with the tokens of `reader`. It has a waiter. */
  expects(reader: Sequence): void {
    this.#add(this.#expected, reader, reader.length);
  }

  /** Records that a sequence is expected no more. */
  forgets(reader: Sequence): void {
    this.#expected.delete(reader);
  }

  /** True if a load in flight brings pages of an expected sequence. */
  isLoading(reader: Sequence): boolean {
    for (const { readers, isLate } of this.#loads) if (!isLate && readers.has(reader)) return true;
    return false;
  }

  #add(to: Map<Sequence, Known>, sequence: Sequence, tokens: number): void {
    const { pageTokens } = this.#parts.kvCache.pool;
    const whole = tokens - (tokens % pageTokens);
    if (whole === 0) return;
    const prompt = { sharing: sharingOf(sequence.spec, pageTokens), tokens: part(sequence.tokens, 0, whole) };
    to.set(sequence, {
      prompt,
      first: -1,
      usable: -1,
      end: -1,
      pageMs: 0,
      tries: 0,
      tokens: 0,
      hostTokens: 0,
    });
  }

  /** Records that a sequence waits no more. Returns its tokens that were loaded. */
  leaves(sequence: Sequence): LoadedTokens {
    const loaded = this.#known.get(sequence) ?? nothing;
    this.#known.delete(sequence);
    return loaded;
  }

  /**
   * Begins loads for sequences that wait for their turn, or, while none waits, for those that are expected.
   * `headroom`: pages that stay available for others.
   */
  begin(headroom: number): void {
    const { kvCache, queue } = this.#parts;
    let lookups = LOOKUPS_MAX;
    let compared = COMPARED_MAX;
    for (const [sequence, known] of queue.size > 0 ? this.#known : this.#expected) {
      if (this.#isFull || lookups === 0 || compared === 0) return;
      if (sequence.queued.owner !== null) continue;
      const before = known.first;
      const pages = this.#missing(sequence, known);
      if (known.first !== before) lookups -= 1;
      if (pages === 0) continue;
      const { pageTokens } = kvCache.pool;
      // Pages behind the last checkpoint are not protected for the waiter, but a load reads on behind them.
      const unprotected = Math.floor(sequence.kv.waiter!.depth / pageTokens) - known.usable;
      if (!kvCache.hasUnprotected(pages, headroom, this.#hasStates ? unprotected : 0)) return;
      if (!kvCache.hasSlotToLoad(known.end * pageTokens, sequence.cachedTokens)) continue;
      compared -= 1;
      if (this.#inFlight(sequence) === null && this.#isWorth(sequence, known, pages))
        this.#begin(sequence, known);
    }
  }

  /**
   * Returns the load that a sequence waits for at its turn, null if it begins without. `hasRoom`: true if there
   * are pages for the whole sequence, and so for a load.
   */
  claim(sequence: Sequence, hasRoom: () => boolean): InFlightPrefix | null {
    const known = this.#known.get(sequence);
    if (known === undefined) return null;
    const inFlight = this.#inFlight(sequence);
    if (inFlight !== null) {
      const { load, tokens } = inFlight;
      const leftMs = Math.max(this.#parts.tier.costs.latencyMs, load.endMs - this.#parts.clock.nowMs());
      if (leftMs >= this.#computeMs(sequence, tokens)) return null;
      load.readers.add(sequence);
      return { owner: load.owner, tokens };
    }
    const pages = this.#missing(sequence, known);
    if (pages === 0 || this.#isFull) return null;
    if (!this.#isWorth(sequence, known, pages) || !hasRoom()) return null;
    const { owner } = this.#begin(sequence, known);
    return { owner, tokens: owner.length };
  }

  /** Number of pages to load that would save the sequence a part of its prefill; 0: the tier has none. */
  #missing(sequence: Sequence, known: Known): number {
    const { tier, kvCache } = this.#parts;
    if (known.tries === TRIES_MAX) return 0;
    const { pageTokens } = kvCache.pool;
    const usable = Math.floor(sequence.cachedTokens / pageTokens);
    const cached = this.#hasStates ? Math.floor(sequence.kv.waiter!.depth / pageTokens) : usable;
    if (known.first < 0 || cached < known.first || usable < known.usable) {
      const isNew = known.first < 0;
      known.first = cached;
      known.usable = usable;
      const end = tier.find(known.prompt, cached);
      known.end = this.#hasStates ? tier.findState(known.prompt, usable, end) : end;
      if (isNew) this.#pagesFound += known.end - usable;
      if (known.end > usable)
        known.pageMs = tier.loadPageMs(known.prompt, Math.min(cached, known.end - 1), known.end);
    }
    // A load has at least its last page, even if the cache lacks only the state behind it.
    return known.end <= usable ? 0 : known.end - Math.min(cached, known.end - 1);
  }

  get #hasStates(): boolean {
    return this.#parts.kvCache.cache.checkpoints !== null;
  }

  /**
   * The load in flight that brings the most missing pages of a sequence. With states only loads count whose whole
   * prefix the sequence shares, since a load has a state only at its end. Null: there is none.
   */
  #inFlight(sequence: Sequence): { readonly load: Load; readonly tokens: number } | null {
    let best: { readonly load: Load; readonly tokens: number } | null = null;
    for (const load of this.#loads) {
      const { owner, isLate } = load;
      const found = findInFlightPrefix(sequence, [owner], this.#parts.kvCache.pool.pageTokens, 1);
      if (found === null || isLate || (this.#hasStates && found.tokens < owner.length)) continue;
      if (best === null || found.tokens > best.tokens) best = { load, tokens: found.tokens };
    }
    return best;
  }

  /**
   * True if the load would take less time than the computation costs the sequence and those that wait with
   * it.
   */
  #isWorth(sequence: Sequence, { end, pageMs }: Known, pages: number): boolean {
    const { clock, kvCache } = this.#parts;
    return (
      this.#endMs(pages, pageMs) - clock.nowMs() < this.#computeMs(sequence, end * kvCache.pool.pageTokens)
    );
  }

  /** Milliseconds that a sequence and those that wait with it lose by computing its tokens up to `end`. */
  #computeMs(sequence: Sequence, end: number): number {
    const { costs, queue } = this.#parts;
    return delayedBy(queue.size) * computeMs(costs, end - sequence.cachedTokens, sequence.cachedTokens);
  }

  /** The time at which a load of `pages` pages, and a state if there are any, ends that begins now: after all others. */
  #endMs(pages: number, pageMs: number): number {
    const { tier, clock } = this.#parts;
    const { latencyMs, statePages } = tier.costs;
    let startMs = clock.nowMs() + latencyMs;
    for (const { endMs } of this.#loads) startMs = Math.max(startMs, endMs);
    return startMs + (pages + statePages) * pageMs;
  }

  #begin(sequence: Sequence, known: Known): Load {
    const { tier, kvCache, costs } = this.#parts;
    const { prompt, end } = known;
    const { pageTokens } = kvCache.pool;
    const hint = { ...sequence.spec, tokens: [], program: null, isWarmed: false };
    const owner = new Sequence(sequenceOfHint(hint, part(sequence.tokens, 0, end * pageTokens)), 0, 0);
    kvCache.allocateLoad(owner);
    owner.state = "running";
    const { lockedPages, pageCount, pages, state } = owner.kv;
    const wanted = [...pages.subarray(lockedPages, pageCount)] as PageId[];
    const endMs = this.#endMs(wanted.length, known.pageMs);
    const { cachedTokens } = sequence;
    const load: Load = {
      owner,
      pages: wanted.length,
      endMs,
      lateMs: endMs + computeMs(costs, owner.length - cachedTokens, cachedTokens),
      isLate: false,
      readers: new Set([sequence]),
    };
    this.#loads.add(load);
    known.tries += 1;
    tier.load(prompt, lockedPages, wanted, state?.slot ?? null, (valid, fromHost) =>
      this.#done(load, valid, fromHost),
    );
    return load;
  }

  /**
   * Ends a load. `valid`: number of its first pages that the tier has verified, plus one for the state. `fromHost`:
   * pages among them from the host's memory.
   */
  #done(load: Load, valid: number, fromHost: number): void {
    assert(this.#loads.delete(load), "a load ends once");
    const { kvCache, queue, onDone } = this.#parts;
    const { owner, pages, readers } = load;
    const whole = pages + (this.#hasStates ? 1 : 0);
    assert(valid >= 0 && valid <= whole, "a load ends with what it was asked for");
    const first = owner.kv.lockedPages;
    const known = [...readers].flatMap((sequence) => {
      const of = this.#known.get(sequence) ?? this.#expected.get(sequence);
      return of === undefined ? [] : [{ of, sequence, before: sequence.cachedTokens }];
    });
    kvCache.freeLoaded(owner, valid);
    this.#pagesLoaded += Math.min(valid, pages);
    this.#pagesFromHost += fromHost;
    if (valid < whole) this.#short += 1;
    for (const { of, sequence, before } of known) {
      const tokens = sequence.cachedTokens - before;
      of.tokens += tokens;
      of.hostTokens += Math.min(tokens, fromHost * kvCache.pool.pageTokens);
      if (valid < whole) of.end = this.#hasStates ? 0 : Math.min(of.end, first + valid);
    }
    queue.wake(owner, Number.POSITIVE_INFINITY);
    onDone();
  }
}

import { assert } from "../../base/assert.ts";
import { type PageId, type PageMove, type SequenceId, type Sharing, sharingOf } from "../core.ts";
import type { Sequence } from "../engine/sequence.ts";
import { Cache, type CacheLock } from "./cache.ts";
import type { EvictionPolicy } from "./eviction.ts";
import { KvEventLog } from "./kv-event-log.ts";
import { PagePool } from "./page-pool.ts";
import { PrefixWaiter, pathPages } from "./radix-tree.ts";

/**
 * Share of the pages that are evicted together at least: one by one costs several times as much, and sends
 * more KV events.
 */
const EVICTED_SHARE = 1 / 1024;
const EVICTED_MAX = 32;

/**
 * Allocates KV pages to sequences and frees them. A sequence is resident between `allocate` and `free`. Its page table is
 *
 *   index   0 ………………… lockedPages ………………………… pageCount
 *   pages   │ the cache's, locked │ the sequence's own │     own: taken here, written by its chunks
 *
 * and `publish` moves the border: it hands complete own pages over to the cache, where other sequences find them at once.
 */
export class KvCacheManager {
  readonly pool: PagePool;
  readonly cache: Cache;
  /** KV events for the fleet; null: it reads none. */
  readonly kvEvents: KvEventLog | null;
  /** Locks on pages that the step being planned or in flight copies from. */
  #sources: CacheLock[] = [];
  /** Locks on the whole pages that held sequences computed, in the order of their ends. */
  readonly #held = new Map<SequenceId, CacheLock>();
  readonly #evictedLeast: number;

  /**
   * `epoch`: the engine's incarnation in its KV events; null: it sends none. `eviction`: by default the
   * policy that serves.
   */
  constructor(pagesTotal: number, pageTokens: number, epoch: number | null, eviction?: EvictionPolicy) {
    this.#evictedLeast = Math.min(EVICTED_MAX, Math.ceil(pagesTotal * EVICTED_SHARE));
    this.pool = new PagePool(pagesTotal, pageTokens);
    this.kvEvents = epoch === null ? null : new KvEventLog(pageTokens, epoch);
    this.cache = new Cache(this.pool, this.kvEvents, eviction);
  }

  /** Pages that are free, or that eviction can free. */
  get pagesAvailable(): number {
    return this.pool.pagesFree + this.cache.pagesEvictable;
  }

  /**
   * Tracks how much of a waiting sequence is cached (`cachedTokens`), and calls `onChange` when that changes.
   * Tokens of which an output is wanted do not count, such as the last one of a prompt.
   */
  track(sequence: Sequence, onChange: () => void): void {
    const { kv, tokens, cachedMax } = sequence;
    if (kv.waiter !== null) return;
    kv.waiter = new PrefixWaiter(this.#sharingOf(sequence), tokens, cachedMax, onChange);
    this.cache.track(kv.waiter);
  }

  /** Stops tracking a sequence. */
  untrack({ kv }: Sequence): void {
    if (kv.waiter === null) return;
    this.cache.untrack(kv.waiter);
    kv.waiter = null;
  }

  /** True if `allocate` would leave `headroom` pages available. */
  fits({ kv, length }: Sequence, headroom: number): boolean {
    const { pageTokens } = this.pool;
    const cached = Math.floor(kv.cachedTokens / pageTokens);
    const needed = Math.ceil(length / pageTokens) - cached;
    const pinned = kv.waiter === null ? 0 : this.cache.pagesPinnedBy(kv.waiter);
    return needed + headroom <= this.pagesAvailable - pinned;
  }

  /**
   * True if `needed` and `headroom` pages can be allocated without evicting any that a waiting sequence will
   * read.
   */
  hasUnprotected(needed: number, headroom: number): boolean {
    const { pagesFree } = this.pool;
    const unwanted = this.pagesAvailable - this.cache.pagesProtected;
    const evicted = needed <= pagesFree ? 0 : Math.max(needed - pagesFree, this.#evictedLeast);
    return needed + headroom <= unwanted && pagesFree + evicted <= unwanted;
  }

  /** True if `allocate` would evict pages that other waiting sequences will read. */
  displaces({ length, cachedTokens }: Sequence): boolean {
    const needed = Math.ceil((length - cachedTokens) / this.pool.pageTokens);
    return needed > this.pagesAvailable - this.cache.pagesProtected;
  }

  /**
   * Allocates pages for all known tokens of a sequence: locks the cached ones, and evicts others for the
   * rest. Where the match ends inside of a page, returns the copy that the first step must make, else null.
   * The caller has checked `fits`. If it did not fit, `exact` must be false: then only whole cached pages are
   * used, and no copy needs a page more.
   */
  allocate(sequence: Sequence, exact: boolean): PageMove | null {
    const { kv, tokens, length } = sequence;
    const sharing = this.#sharingOf(sequence);
    assert(kv.pageCount === 0 && kv.lock === null, "a sequence settles once");
    const { pageTokens } = this.pool;
    const matched = kv.cachedTokens;
    const lock = this.cache.lock(tokens, sequence.cachedMax, sharing);
    const copied = exact ? matched % pageTokens : 0;
    const source = copied > 0 ? this.cache.lockSource(tokens, matched, sharing) : null;
    if (source !== null) this.#sources.push(source.lock);

    kv.lock = lock;
    kv.reservePages(Math.ceil(tokens.length / pageTokens));
    for (const page of pathPages(lock.node)) kv.addPage(page);
    kv.lockedPages = kv.pageCount;
    this.untrack(sequence);
    const needed = Math.ceil(length / pageTokens) - kv.pageCount;
    if (this.pool.pagesFree < needed) this.#evict(needed - this.pool.pagesFree);
    for (let i = 0; i < needed; i++) kv.addPage(this.pool.take());

    kv.computed = lock.node.end + copied;
    kv.promptEnd = length;
    if (source === null) return null;
    const to = kv.pages[kv.lockedPages]! as PageId;
    return { from: source.page, tier: "device", to, count: copied };
  }

  /** Unlocks the sources of the step's copies, which are made or never will be. */
  endCopies(): void {
    for (const source of this.#sources) this.cache.release(source);
    this.#sources = [];
  }

  /** True if the next token to compute begins a page that the sequence does not have. */
  needsPage({ kv }: Sequence): boolean {
    return kv.computed === kv.pageCount * this.pool.pageTokens;
  }

  /** Adds one page; evicts for it if need be. False if there is none. */
  grow({ kv }: Sequence): boolean {
    if (this.pool.pagesFree === 0 && this.#evict(1) === 0) return false;
    kv.addPage(this.pool.take());
    return true;
  }

  /** Adds pages for up to `tokens` more tokens; returns how many tokens have room. */
  roomFor(sequence: Sequence, tokens: number): number {
    const { kv } = sequence;
    const { pageTokens } = this.pool;
    while (kv.pageCount * pageTokens < kv.computed + tokens && this.grow(sequence));
    return Math.min(tokens, kv.pageCount * pageTokens - kv.computed);
  }

  /** Records that a step has computed `count` more tokens of the sequence. */
  computed({ kv }: Sequence, count: number): void {
    kv.computed += count;
  }

  /**
   * Hands complete pages over to the cache. Where the cache has them already, the page table gets the
   * cache's.
   */
  publish({ kv, tokens }: Sequence): void {
    const { pageTokens } = this.pool;
    const end = kv.computed - (kv.computed % pageTokens);
    assert(kv.lock !== null, "only residents have pages to publish");
    kv.lock = this.cache.insert(kv.lock, tokens, end, kv.pages);
    kv.pagesRewritten();
    kv.lockedPages = end / pageTokens;
  }

  /**
   * Frees the pages of a sequence. `keep`: they go to the cache; else, as their contents are in doubt, they
   * are discarded. `isHeld`: the cache does not evict the whole ones until `releaseHeld`.
   */
  free({ kv, tokens, id }: Sequence, keep: boolean, isHeld = false): void {
    const { lock, pages, pageCount, computed } = kv;
    assert(lock !== null, "only residents can leave");
    const kept = keep ? Math.ceil(computed / this.pool.pageTokens) : kv.lockedPages;
    for (let index = kept; index < pageCount; index++) this.pool.release(pages[index]! as PageId);
    if (keep) this.cache.insertLast(lock, tokens, computed, pages);
    else this.cache.discard(lock);
    if (keep && isHeld && computed > 0) this.#held.set(id, this.cache.lock(tokens, computed, lock.sharing));
    kv.lock = null;
    kv.lockedPages = 0;
    kv.pageCount = 0;
    kv.computed = 0;
  }

  /** Lets the pages of a held sequence be evicted again. */
  releaseHeld(id: SequenceId): void {
    const lock = this.#held.get(id);
    if (lock === undefined) return;
    this.#held.delete(id);
    this.cache.release(lock);
  }

  /** Releases the sequence that has been held for longest; false if there is none. */
  releaseOldestHeld(): boolean {
    const [first] = this.#held.keys();
    if (first === undefined) return false;
    this.releaseHeld(first);
    return true;
  }

  #sharingOf({ spec }: Sequence): Sharing {
    return sharingOf(spec, this.pool.pageTokens);
  }

  /** Evicts at least `pages` pages if it can; returns how many. */
  #evict(pages: number): number {
    return this.cache.evict(Math.max(pages, this.#evictedLeast));
  }

  /** All locks but those of running sequences. */
  get sources(): readonly CacheLock[] {
    return [...this.#sources, ...this.#held.values()];
  }
}

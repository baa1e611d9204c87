import { assert, type PageId, type PageMove } from "../core.ts";
import type { Sequence } from "../engine/sequence.ts";
import type { AdmissionPolicy } from "../policy.ts";
import { Cache, type Lease } from "./cache.ts";
import { NoticeBook } from "./notices.ts";
import { PagePool } from "./page-pool.ts";
import { pathPages } from "./radix-tree.ts";
import { Reader } from "./reader.ts";

/** Of all pages, those that are evicted together at least: one by one would cost several times as much, and notices. */
const EVICTED_SHARE = 1 / 1024;
const EVICTED_MAX = 32;

/**
 * How sequences come to pages and give them up. A sequence is resident between `settle` and `leave`; its page
 * table is
 *
 *   index   0 ………………… leasedPages ………………………… pageCount
 *   pages   │ the cache's, leased │ the sequence's own │     own: taken here, written by its chunks
 *
 * and `publish` moves the border: the own pages that are complete become the cache's, so that others find
 * them at once.
 */
export class Residency {
  readonly pool: PagePool;
  readonly cache: Cache;
  /** What has changed in the cache since it was told; null: nobody wants to know. */
  readonly notices: NoticeBook | null;
  /** Pins on pages that the step being planned or in flight copies from. */
  #sources: Lease[] = [];
  readonly #isCaching: boolean;
  readonly #evictedLeast: number;

  /** `epoch`: which life of the engine notices are of, null
   *  for no notices. */
  constructor(
    pagesTotal: number,
    pageTokens: number,
    { cache, keepsWanted }: Pick<AdmissionPolicy, "cache" | "keepsWanted">,
    epoch: number | null,
  ) {
    this.#isCaching = cache;
    this.#evictedLeast = Math.min(EVICTED_MAX, Math.ceil(pagesTotal * EVICTED_SHARE));
    this.pool = new PagePool(pagesTotal, pageTokens);
    this.notices = epoch === null ? null : new NoticeBook(pageTokens, epoch);
    this.cache = new Cache(this.pool, this.notices, keepsWanted);
  }

  /** Pages that are free or can be made so without preempting anybody. */
  get pagesAvailable(): number {
    return this.pool.pagesFree + this.cache.pagesEvictable;
  }

  /** The sequence waits: from now on `cachedTokens` tells how much of it is cached, and `onChange` is told when that
   *  changes. The last known token never counts: its logits are needed. */
  follow(sequence: Sequence, onChange: () => void): void {
    if (!this.#isCaching || sequence.reader !== null) return;
    sequence.reader = new Reader(sequence.cacheKey, sequence.tokens, sequence.length - 1, onChange);
    this.cache.follow(sequence.reader);
  }

  /** The sequence waits no longer. */
  unfollow(sequence: Sequence): void {
    if (sequence.reader === null) return;
    this.cache.unfollow(sequence.reader);
    sequence.reader = null;
  }

  /** Whether `settle` would leave `headroom` pages available. */
  fits(sequence: Sequence, headroom: number): boolean {
    const { pageTokens } = this.pool;
    const cached = Math.floor(sequence.cachedTokens / pageTokens);
    const needed = Math.ceil(sequence.length / pageTokens) - cached;
    const pinned = sequence.reader === null ? 0 : this.cache.pagesPinnedBy(sequence.reader);
    return needed + headroom <= this.pagesAvailable - pinned;
  }

  /** Whether `settle` would take pages that others wait to read. */
  displaces({ length, cachedTokens }: Sequence): boolean {
    const needed = Math.ceil((length - cachedTokens) / this.pool.pageTokens);
    return needed > this.pagesAvailable - this.cache.pagesWanted;
  }

  /**
   * Gives the sequence pages for all its known tokens: leases what is cached, evicts for the rest. Returns
   * the copy that its first step must make where the match ends inside a page, else null. The caller has
   * checked `fits`; only without it may `exact` be false, which uses whole pages of the cache and so never
   * needs more than the sequence's own number.
   */
  settle(sequence: Sequence, exact: boolean): PageMove | null {
    assert(sequence.pageCount === 0 && sequence.lease === null, "a sequence settles once");
    const { pageTokens } = this.pool;
    const { tokens, length, cacheKey } = sequence;
    const matched = sequence.cachedTokens;
    const lease = this.cache.lease(tokens, this.#isCaching ? length - 1 : 0, cacheKey);
    const copied = exact ? matched % pageTokens : 0;
    const source = copied > 0 ? this.cache.leaseSource(tokens, matched, cacheKey) : null;
    if (source !== null) this.#sources.push(source.lease);

    sequence.lease = lease;
    sequence.reservePages(Math.ceil(tokens.length / pageTokens));
    for (const page of pathPages(lease.span)) sequence.addPage(page);
    sequence.leasedPages = sequence.pageCount;
    this.unfollow(sequence);
    const needed = Math.ceil(length / pageTokens) - sequence.pageCount;
    if (this.pool.pagesFree < needed) this.#evict(needed - this.pool.pagesFree);
    for (let i = 0; i < needed; i++) sequence.addPage(this.pool.take());

    sequence.computed = lease.span.end + copied;
    sequence.promptEnd = length;
    if (source === null) return null;
    const to = sequence.pages[sequence.leasedPages]! as PageId;
    return { from: source.page, tier: "device", to, count: copied };
  }

  /** The step's copies are made (or will never be): their sources need no protection any more. */
  endCopies(): void {
    for (const source of this.#sources) this.cache.release(source);
    this.#sources = [];
  }

  /** Whether the next token to compute begins a page that the sequence has not got. */
  needsPage(sequence: Sequence): boolean {
    return sequence.computed === sequence.pageCount * this.pool.pageTokens;
  }

  /** Adds one page; evicts for it if need be. False if there is none. */
  grow(sequence: Sequence): boolean {
    if (this.pool.pagesFree === 0 && this.#evict(1) === 0) return false;
    sequence.addPage(this.pool.take());
    return true;
  }

  /** Hands complete pages over to the cache. May rewrite the page table where the cache has them already. */
  publish(sequence: Sequence): void {
    if (!this.#isCaching) return;
    const { pageTokens } = this.pool;
    const end = sequence.computed - (sequence.computed % pageTokens);
    assert(sequence.lease !== null, "only residents have pages to publish");
    sequence.lease = this.cache.insert(sequence.lease, sequence.tokens, end, sequence.pages);
    sequence.pagesRewritten();
    sequence.leasedPages = end / pageTokens;
  }

  /** Takes the sequence's pages. `keep`: what it computed goes to the cache; else (its contents are in doubt)
   *  it is lost. */
  leave(sequence: Sequence, keep: boolean): void {
    const { lease, pages, pageCount, computed } = sequence;
    assert(lease !== null, "only residents can leave");
    const isKept = keep && this.#isCaching;
    const kept = isKept ? Math.ceil(computed / this.pool.pageTokens) : sequence.leasedPages;
    for (let index = kept; index < pageCount; index++) this.pool.release(pages[index]! as PageId);
    if (isKept) this.cache.insertLast(lease, sequence.tokens, computed, pages);
    else this.cache.discard(lease);
    sequence.lease = null;
    sequence.leasedPages = 0;
    sequence.pageCount = 0;
    sequence.computed = 0;
  }

  /** Frees `pages` pages or more, if so many can be evicted; returns how many it freed. */
  #evict(pages: number): number {
    return this.cache.evict(Math.max(pages, this.#evictedLeast));
  }

  /** The leases there are besides the sequences'. */
  get sources(): readonly Lease[] {
    return this.#sources;
  }
}

import { assert } from "../../base/assert.ts";
import {
  type ChunkState,
  type PageId,
  type PageMove,
  type SequenceId,
  type Sharing,
  sharingOf,
} from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { Sequence } from "../engine/sequence.ts";
import { Cache, type CacheLock, type CacheObserver } from "./cache.ts";
import { type CacheStates, type CheckpointPolicy, GreedyDual, type SavedState } from "./checkpoints.ts";
import type { EvictionPolicy } from "./eviction.ts";
import { KvEventLog } from "./kv-event-log.ts";
import type { LowerTier } from "./lower-tier.ts";
import { PagePool } from "./page-pool.ts";
import { type Checkpoint, type CheckpointKind, deepest, PrefixWaiter, pathPages } from "./radix-tree.ts";
import type { SequenceKv, SequenceState } from "./sequence-kv.ts";
import { computeMs } from "./tier-prices.ts";
import { TierStores } from "./tier-stores.ts";

/** Smallest share of all pages that one eviction frees: batching makes evictions cheaper, and KV events fewer. */
const EVICTED_SHARE = 1 / 1024;
const EVICTED_MAX = 32;

/** Policies of a KV cache; by default those that serve. */
export interface KvCachePolicies {
  readonly eviction?: EvictionPolicy;
  readonly checkpoints?: CheckpointPolicy;
}

/** Pages of a held sequence, and the checkpoint at its end. */
interface Held {
  readonly lock: CacheLock;
  readonly checkpoint: Checkpoint | null;
}

/**
 * Allocates KV pages and state slots to sequences and frees them. A sequence is resident between `allocate` and
 * `free`. Its page table is
 *
 *   index   0 ………………… lockedPages ………………………… pageCount
 *   pages   │ the cache's, locked │ the sequence's own │     own: allocated for it, written by its chunks
 *
 * `publish` moves the border: it hands complete own pages over to the cache, where other sequences find them at once.
 */
export class KvCacheManager {
  readonly pool: PagePool;
  readonly cache: Cache;
  /** KV events for the fleet; null: it reads none. */
  readonly kvEvents: KvEventLog | null;
  /** Stores on the lower tier; null: there is no tier. */
  readonly stores: TierStores | null;
  /** Locks on pages that the step being planned or in flight copies from. */
  #sources: CacheLock[] = [];
  /** Held sequences, in the order of their ends. */
  readonly #held = new Map<SequenceId, Held>();
  readonly #evictedLeast: number;

  /** `epoch`: the engine's incarnation in its KV events; null: it sends none. `tier`: null, if there is none. */
  constructor(
    { pages, pageTokens, states }: Pick<DeviceSpec, "pages" | "pageTokens" | "states">,
    epoch: number | null,
    costs: CostModel,
    { eviction, checkpoints = new GreedyDual() }: KvCachePolicies = {},
    tier: LowerTier | null = null,
  ) {
    this.#evictedLeast = Math.min(EVICTED_MAX, Math.ceil(pages * EVICTED_SHARE));
    this.pool = new PagePool(pages, pageTokens);
    this.kvEvents = epoch === null ? null : new KvEventLog(pageTokens, epoch);
    const cacheStates = states === undefined ? null : statesOf(states.slots, checkpoints, costs);
    const chance = states === undefined ? null : checkpoints;
    this.stores = tier === null ? null : new TierStores(tier, this.pool, costs, chance);
    this.cache = new Cache(this.pool, observerOf(this.kvEvents, this.stores), cacheStates, eviction);
  }

  /** Pages that are free, or that eviction can free. */
  get pagesAvailable(): number {
    return this.pool.pagesFree + this.cache.pagesEvictable;
  }

  /**
   * Tracks how much of a waiting sequence is cached (`cachedTokens`), and calls `onChange` when that changes.
   * Tokens from `limit` on do not count: they have output rows, as the last token of a prompt has.
   */
  track(sequence: Sequence, onChange: () => void, limit = sequence.cachedMax): void {
    const { kv, tokens } = sequence;
    if (kv.waiter !== null) return;
    kv.waiter = new PrefixWaiter(this.#sharingOf(sequence), tokens, limit, onChange);
    this.cache.track(kv.waiter);
  }

  /** Stops tracking a sequence. `givesUp`: no other is known to need its pages, which are evicted first. */
  untrack({ kv }: Sequence, givesUp = false): void {
    if (kv.waiter === null) return;
    this.cache.untrack(kv.waiter, givesUp);
    kv.waiter = null;
  }

  /** True if `allocate` would leave `headroom` pages available, and finds a state slot. */
  fits({ kv, length }: Sequence, headroom: number): boolean {
    if (this.cache.checkpoints?.available === 0) return false;
    const { pageTokens } = this.pool;
    const cached = Math.floor(kv.cachedTokens / pageTokens);
    const needed = Math.ceil(length / pageTokens) - cached;
    const pinned = kv.waiter === null ? 0 : this.cache.pagesPinnedBy(kv.waiter);
    return needed + headroom <= this.pagesAvailable - pinned;
  }

  /**
   * True if `needed` and `headroom` pages can be allocated without evicting any that a waiting sequence will
   * read. `pinned`: other evictable pages that are not evictable once the allocation begins.
   */
  hasUnprotected(needed: number, headroom: number, pinned = 0): boolean {
    const { pagesFree } = this.pool;
    const unwanted = this.pagesAvailable - this.cache.pagesProtected - pinned;
    const evicted = needed <= pagesFree ? 0 : Math.max(needed - pagesFree, this.#evictedLeast);
    return needed + headroom <= unwanted && pagesFree + evicted <= unwanted;
  }

  /** True if `allocate` would evict pages that other waiting sequences will read. */
  displaces({ length, cachedTokens }: Sequence): boolean {
    const needed = Math.ceil((length - cachedTokens) / this.pool.pageTokens);
    return needed > this.pagesAvailable - this.cache.pagesProtected;
  }

  /**
   * Allocates pages for all known tokens of a sequence, and a state slot: locks the cached pages, and evicts
   * others for the rest. If the usable match ends inside of a page, returns the copy that the first step must
   * make (copy-on-write), else null. The caller has checked `fits`. If it did not fit, `exact` must be false: the
   * sequence then uses only whole cached pages, without the extra page of a copy.
   */
  allocate(sequence: Sequence, exact: boolean): PageMove | null {
    const { kv, tokens } = sequence;
    const sharing = this.#sharingOf(sequence);
    const { pageTokens } = this.pool;
    const { checkpoints } = this.cache;
    const matched = kv.waiter?.depth ?? 0;
    const from = exact ? (kv.waiter?.checkpoint ?? null) : this.#checkpointOfPages(kv);
    const usable = checkpoints === null ? kv.cachedTokens : (from?.depth ?? 0);
    const lock = this.cache.lock(tokens, checkpoints === null ? sequence.cachedMax : usable, sharing);
    const copied = exact ? usable % pageTokens : 0;
    const source = copied > 0 ? this.cache.lockSource(tokens, usable, sharing) : null;
    if (source !== null) this.#sources.push(source.lock);
    this.#allocatePages(sequence, lock);
    kv.computed = kv.lockedPages * pageTokens + copied;
    if (checkpoints !== null) this.#allocateState(sequence, from, matched);
    if (source === null) return null;
    const to = kv.pages[kv.lockedPages]! as PageId;
    return { from: source.page, tier: "device", to, count: copied };
  }

  /** Gives a sequence the pages of its lock, and others for the rest of its tokens. */
  #allocatePages(sequence: Sequence, lock: CacheLock): void {
    const { kv, tokens, length } = sequence;
    assert(kv.pageCount === 0 && kv.lock === null, "a sequence is allocated once");
    kv.lock = lock;
    kv.reservePages(Math.ceil(tokens.length / this.pool.pageTokens));
    for (const page of pathPages(lock.node)) kv.addPage(page);
    kv.lockedPages = kv.pageCount;
    this.untrack(sequence);
    const needed = Math.ceil(length / this.pool.pageTokens) - kv.pageCount;
    if (this.pool.pagesFree < needed) this.#evict(needed - this.pool.pagesFree, sequence);
    for (let i = 0; i < needed; i++) kv.addPage(this.pool.take());
    kv.promptEnd = length;
  }

  /** The deepest checkpoint of a waiter's match that needs no copy of a part of a page; null: there is none. */
  #checkpointOfPages({ waiter }: SequenceKv): Checkpoint | null {
    const { pageTokens } = this.pool;
    let found = waiter?.checkpoint ?? null;
    while (found !== null && found.depth % pageTokens !== 0) found = deepest(found.node!, found.depth - 1);
    return found;
  }

  /** Takes a slot for a sequence that begins from checkpoint `from`, and notes where it leaves checkpoints. */
  #allocateState({ kv, length, spec }: Sequence, from: Checkpoint | null, matched: number): void {
    const checkpoints = this.cache.checkpoints!;
    const { pageTokens } = this.pool;
    const { computed } = kv;
    const positions = checkpoints.policy.positions({
      length,
      computed,
      matched,
      publicTokens: spec.publicTokens ?? 0,
    });
    const wanted = new Map<number, CheckpointKind>();
    for (const [position, kind] of positions) {
      const border = position - (position % pageTokens);
      if (border > computed && border < length && !wanted.has(border)) wanted.set(border, kind);
    }
    kv.state = {
      ...checkpoints.begin(from),
      ...{ spare: null, wanted: inOrder(wanted), end: "end", saving: [] },
    };
  }

  /**
   * Asks for a checkpoint at a page border that an unfinished prompt has yet to compute: another sequence
   * waits for it.
   */
  wantCheckpoint({ kv }: Sequence, border: number): void {
    if (kv.state === null || border <= kv.computed) return;
    kv.state.wanted = inOrder(new Map([...kv.state.wanted, [border, "branch"]]));
  }

  /**
   * Returns the state slots of the chunk up to known token `end`, drafts not counted. Takes slots for the wanted
   * checkpoints in it that are worth more than the cheapest existing one. `leaves` false: no checkpoints. Null:
   * the model has no recurrent layers.
   */
  planState({ kv }: Sequence, end: number, leaves = true): ChunkState | null {
    const { state, computed, lock } = kv;
    if (state === null) return null;
    let above = deepest(lock!.node, computed)?.depth ?? 0;
    const saving: SavedState[] = [];
    for (const [depth, kind] of leaves ? state.wanted : []) {
      if (depth > end) break;
      const slot = this.cache.checkpoints!.takeFor(kind, depth, above);
      if (slot === null) continue;
      saving.push({ depth, slot, kind });
      above = depth;
    }
    state.saving = saving;
    state.wanted = state.wanted.filter(([depth]) => depth > end);
    const saves = saving.map(({ depth, slot }) => ({ count: depth - computed, slot }));
    if (state.spare !== null) saves.push({ count: end - computed, slot: state.spare });
    return {
      slot: state.slot,
      from: state.from?.slot ?? (computed === 0 ? null : state.slot),
      saves,
    };
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
  grow(sequence: Sequence): boolean {
    const { kv } = sequence;
    if (this.pool.pagesFree === 0 && this.#evict(1, sequence) === 0) return false;
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

  /**
   * Takes a slot for the state before a draft, which a rejection restores; may evict the cheapest checkpoint.
   * False if no slot is available, or if a checkpoint is planned at the same token, as a step saves one state
   * per token.
   */
  prepareDraft({ kv, length }: Sequence): boolean {
    if (kv.state === null) return true;
    const checkpoints = this.cache.checkpoints!;
    if (checkpoints.available === 0 || kv.state.wanted.some(([depth]) => depth === length)) return false;
    kv.state.spare = checkpoints.take();
    return true;
  }

  /**
   * Records that of `verified` drafts behind the computed tokens the first `accepted` were accepted. After a
   * rejection it restores the recurrent state from before the draft. Returns how many of the accepted tokens
   * need not be computed again.
   */
  verifiedDraft({ kv }: Sequence, verified: number, accepted: number): number {
    const { state } = kv;
    if (state === null || accepted === verified) return accepted;
    [state.slot, state.spare] = [state.spare!, state.slot];
    return 0;
  }

  /** Frees what drafts needed: the pages behind the known tokens, and the slot of the saved state. */
  dropDrafts({ kv, length }: Sequence): void {
    const kept = Math.ceil(length / this.pool.pageTokens);
    while (kv.pageCount > kept) this.pool.release(kv.takePage());
    this.#dropSpare(kv);
  }

  #dropSpare({ state }: SequenceKv): void {
    if (state === null || state.spare === null) return;
    this.cache.checkpoints!.pool.release(state.spare);
    state.spare = null;
  }

  /**
   * Records that a step has computed `count` more tokens of the sequence. Checkpoints behind them, which the
   * device left out with a deferred row, are planned again.
   */
  computed({ kv }: Sequence, count: number): void {
    kv.computed += count;
    if (count > 0) this.#endReading(kv);
    const { state } = kv;
    const last = state?.saving.at(-1);
    if (state === null || last === undefined || last.depth <= kv.computed) return;
    state.saving = state.saving.slice(0, -1);
    this.cache.checkpoints!.pool.release(last.slot);
    state.wanted = [[last.depth, last.kind], ...state.wanted];
  }

  /**
   * Hands complete pages over to the cache, with the checkpoints that the step made. Where the cache has the
   * pages already, the page table gets the cache's.
   */
  publish({ kv, tokens }: Sequence): void {
    const { pageTokens } = this.pool;
    const end = kv.computed - (kv.computed % pageTokens);
    assert(kv.lock !== null, "only a resident sequence has pages to publish");
    kv.lock = this.cache.insert(kv.lock, tokens, end, kv.pages);
    kv.pagesRewritten();
    kv.lockedPages = end / pageTokens;
    if (kv.state === null) return;
    for (const saved of kv.state.saving) this.cache.checkpoints!.add(kv.lock.node, saved);
    kv.state.saving = [];
  }

  /**
   * Frees the pages and the slot of a sequence. `keep`: the cache takes over its computed pages; else it discards
   * them, as their contents may be wrong. `isHeld`: pins whole pages until `releaseHeld`; for a model with states
   * also the partial page and the checkpoint at the end.
   */
  free({ kv, tokens, id }: Sequence, keep: boolean, isHeld = false): void {
    const { lock, pages, pageCount, computed } = kv;
    assert(lock !== null, "only a resident sequence is freed");
    const kept = keep ? Math.ceil(computed / this.pool.pageTokens) : kv.lockedPages;
    for (let index = kept; index < pageCount; index++) this.pool.release(pages[index]! as PageId);
    const states = this.#freeState(kv, keep);
    if (keep) this.cache.insertLast(lock, tokens, computed, pages, states);
    else this.cache.discard(lock);
    if (keep && isHeld && computed > 0) this.#held.set(id, this.#hold(tokens, computed, lock.sharing));
    kv.lock = null;
    kv.lockedPages = 0;
    kv.pageCount = 0;
    kv.computed = 0;
  }

  /** True if a load may take a slot for the state at `depth`, of a sequence that has the one at `above`. */
  hasSlotToLoad(depth: number, above: number): boolean {
    return this.cache.checkpoints?.isWorth("loaded", depth, above) ?? true;
  }

  /**
   * Allocates pages for all tokens of a load as for a sequence: at least the last page is its own, not a cached
   * one. Also takes a state slot, which must be available.
   */
  allocateLoad(sequence: Sequence): void {
    const { kv, tokens, length } = sequence;
    this.#allocatePages(sequence, this.cache.lock(tokens, length - 1, this.#sharingOf(sequence)));
    kv.computed = kv.lockedPages * this.pool.pageTokens;
    const slot = this.cache.checkpoints?.take();
    if (slot !== undefined)
      kv.state = { slot, from: null, spare: null, wanted: [], end: "loaded", saving: [] };
  }

  /**
   * Ends a load: the cache takes over the first `valid` pages, whose contents the tier has verified. The state is
   * valid too if `valid` counts one more than the pages.
   */
  freeLoaded(sequence: Sequence, valid: number): void {
    const { kv } = sequence;
    const pages = Math.min(valid, kv.pageCount - kv.lockedPages);
    kv.computed += pages * this.pool.pageTokens;
    if (kv.state !== null && valid === pages) {
      this.cache.checkpoints!.pool.release(kv.state.slot);
      kv.state = null;
    }
    this.stores?.loading(() => this.free(sequence, true));
  }

  /** Ends the state of a sequence. Returns the states that become checkpoints, and frees all other slots. */
  #freeState(kv: SequenceKv, keep: boolean): readonly SavedState[] {
    const { state, computed } = kv;
    if (state === null) return [];
    this.#dropSpare(kv);
    const isLive = state.from === null && computed > 0;
    const all: SavedState[] = [...state.saving, { depth: computed, slot: state.slot, kind: state.end }];
    this.#endReading(kv);
    kv.state = null;
    if (keep && isLive) return all;
    for (const { slot } of all) this.cache.checkpoints!.pool.release(slot);
    return [];
  }

  #endReading({ state }: SequenceKv): void {
    if (state === null || state.from === null) return;
    this.cache.checkpoints!.unpin(state.from);
    state.from = null;
  }

  #hold(tokens: Int32Array, end: number, sharing: Sharing): Held {
    const { checkpoints } = this.cache;
    if (checkpoints === null) return { lock: this.cache.lock(tokens, end, sharing), checkpoint: null };
    const lock = this.cache.hold(tokens, end, sharing);
    const checkpoint = deepest(lock.node, end);
    if (checkpoint !== null) checkpoints.pin(checkpoint);
    return { lock, checkpoint };
  }

  /** Unpins the pages of a held sequence, which become evictable again. */
  releaseHeld(id: SequenceId): void {
    const held = this.#held.get(id);
    if (held === undefined) return;
    this.#held.delete(id);
    if (held.checkpoint !== null) this.cache.checkpoints!.unpin(held.checkpoint);
    this.cache.release(held.lock);
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

  /** Evicts at least `pages` pages for a sequence if it can; returns how many. */
  #evict(pages: number, sequence: Sequence): number {
    return this.cache.evict(Math.max(pages, this.#evictedLeast), this.#sharingOf(sequence).key);
  }

  /** All locks but those of running sequences. */
  get sources(): readonly CacheLock[] {
    return [...this.#sources, ...[...this.#held.values()].map(({ lock }) => lock)];
  }

  /** The pinned checkpoints of held sequences. */
  get heldCheckpoints(): readonly Checkpoint[] {
    return [...this.#held.values()].flatMap(({ checkpoint }) => checkpoint ?? []);
  }
}

/** Positions by rising depth. */
function inOrder(positions: ReadonlyMap<number, CheckpointKind>): SequenceState["wanted"] {
  return [...positions].sort(([a], [b]) => a - b);
}

function statesOf(slots: number, policy: CheckpointPolicy, costs: CostModel): CacheStates {
  return { slots, policy, computeMs: (tokens, context) => computeMs(costs, tokens, context) };
}

function observerOf(kvEvents: KvEventLog | null, stores: TierStores | null): CacheObserver | null {
  if (kvEvents === null || stores === null) return kvEvents ?? stores;
  return {
    inserted: (node) => {
      kvEvents.inserted(node);
      stores.inserted(node);
    },
    evicting: (node, from) => kvEvents.evicting(node, from),
    dropping: (leaf, count) => stores.dropping(leaf, count),
    saved: (checkpoint) => stores.saved(checkpoint),
    dropped: (checkpoint) => stores.dropped(checkpoint),
  };
}

import { assert } from "../../base/assert.ts";
import type { CacheLock } from "../cache/cache.ts";
import { checkCache, checkSlots } from "../cache/integrity.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import { type Checkpoint, pathPages } from "../cache/radix-tree.ts";
import type { PageId, SequenceId, StateSlot } from "../core.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Checks page and slot counts while no step is in flight: the cheap part of `checkEngine`. `loads`: the
 * sequences that hold the pages and slots of loads.
 */
export function checkCounts(
  { pool, cache }: KvCacheManager,
  running: readonly Sequence[],
  loads: readonly Sequence[],
): void {
  const owned = [...running, ...loads].reduce((sum, { kv }) => sum + kv.pageCount - kv.lockedPages, 0);
  assert(pool.pagesFree + cache.pagesHeld + owned === pool.pagesTotal, "free + cached + owned = all pages");
  if (cache.checkpoints === null) return;
  const { pool: slots, kept } = cache.checkpoints;
  const read = new Set(running.flatMap(({ kv }) => kv.state?.from ?? []));
  const dropped = [...read].filter(({ node }) => node === null).length;
  const used = kept.size + dropped + running.length + loads.length;
  assert(slots.freeCount + used === slots.total, "free + kept + owned = all slots");
}

/**
 * Checks an engine's records against each other; throws InvariantError on the first contradiction. Costs
 * O(pages + nodes + sequences). `others`: sequences that hold pages for a prefix hint or a load.
 */
export function checkEngine(
  kvCache: KvCacheManager,
  queue: WaitQueue,
  running: readonly Sequence[],
  sequences: ReadonlyMap<SequenceId, Sequence>,
  others: readonly Sequence[],
): void {
  const locks: CacheLock[] = [...kvCache.sources];
  const owned: PageId[] = [];
  const slots: StateSlot[] = [];
  const pins: Checkpoint[] = [...kvCache.heldCheckpoints];
  for (const sequence of [...running, ...others]) {
    locks.push(checkResident(sequence, kvCache.pool.pageTokens));
    const { lockedPages, pageCount, pages, state } = sequence.kv;
    if (state !== null)
      slots.push(
        state.slot,
        ...(state.spare === null ? [] : [state.spare]),
        ...state.saving.map(({ slot }) => slot),
      );
    if (state !== null && state.from !== null) pins.push(state.from);
    for (let i = lockedPages; i < pageCount; i++) owned.push(pages[i]! as PageId);
    const isKnown = sequence.state === "running" && sequences.get(sequence.id) === sequence;
    assert(others.includes(sequence) || isKnown, "running sequences are known");
  }
  const { pool, cache } = kvCache;
  checkCache(pool, cache, locks, owned);
  if (cache.checkpoints !== null) checkSlots(cache, cache.checkpoints, slots, pins);

  let waiting = 0;
  let resident = 0;
  for (const sequence of sequences.values()) {
    assert(sequence.state !== "ended" && sequence.behind >= 1, "known sequences have tokens left to compute");
    if (sequence.state === "running") resident += 1;
    else {
      assert(sequence.kv.lock === null && sequence.kv.pageCount === 0, "waiting sequences hold nothing");
      if (!sequence.isPaused) waiting += 1;
    }
  }
  assert(resident === running.length, "each running sequence is in the list once");
  for (const { waiter, owner, tokens } of queue.prefixWaits()) {
    assert(waiter.state === "waiting" && sequences.get(waiter.id) === waiter, "waiters are known");
    assert(waiter.queued.owner === owner && owner.state === "running" && !owner.isPaused, "owners run");
    assert(running.includes(owner) || others.includes(owner), "owners hold pages");
    assert(tokens <= owner.kv.promptEnd, "an owner will publish the prefix that its waiters need");
    assert(tokens > owner.kv.lockedPages * kvCache.pool.pageTokens, "an awaited prefix is not published yet");
  }
  assert(waiting === queue.size, "each sequence that waits and is not paused is in the queue once");
}

function checkResident(sequence: Sequence, pageTokens: number): CacheLock {
  const { lock, lockedPages, pageCount, pages, state } = sequence.kv;
  assert(lock !== null, "running sequences have a lock");
  if (state !== null && state.from !== null)
    assert(state.from.depth === sequence.computed, "a sequence begins where its checkpoint ends");
  assert(lock.node.end === lockedPages * pageTokens, "a lock ends on a page border");
  assert(lock.node.end <= sequence.computed, "locked tokens are computed");
  assert(sequence.computed <= pageCount * pageTokens, "computed tokens have pages");
  const tokens = sequence.length + sequence.drafted;
  assert(pageCount <= Math.ceil(tokens / pageTokens), "no page is reserved without a token");
  pathPages(lock.node).forEach((page, index) => {
    assert(pages[index] === page, "the locked part of the page table is the cache's");
  });
  return lock;
}

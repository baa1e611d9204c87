import { assert } from "../../base/assert.ts";
import type { CacheLock } from "../cache/cache.ts";
import { checkCache } from "../cache/integrity.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import { pathPages } from "../cache/radix-tree.ts";
import type { PageId, SequenceId } from "../core.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { Sequence } from "./sequence.ts";

/** Checks page counts: the cheap part of `checkEngine`. */
export function checkPageCounts({ pool, cache }: KvCacheManager, running: readonly Sequence[]): void {
  const owned = running.reduce((sum, { kv }) => sum + kv.pageCount - kv.lockedPages, 0);
  assert(pool.pagesFree + cache.pagesHeld + owned === pool.pagesTotal, "free + cached + owned = all pages");
}

/** Checks an engine's records against each other; throws InvariantError on the first contradiction. Costs a
 *  walk over everything, some 20 ms for 500 000 pages. */
export function checkEngine(
  kvCache: KvCacheManager,
  queue: WaitQueue,
  running: readonly Sequence[],
  sequences: ReadonlyMap<SequenceId, Sequence>,
  warm: Sequence | null,
): void {
  const locks: CacheLock[] = [...kvCache.sources];
  const owned: PageId[] = [];
  for (const sequence of warm === null ? running : [...running, warm]) {
    locks.push(checkResident(sequence, kvCache.pool.pageTokens));
    const { lockedPages, pageCount, pages } = sequence.kv;
    for (let i = lockedPages; i < pageCount; i++) owned.push(pages[i]! as PageId);
    const isKnown = sequence.state === "running" && sequences.get(sequence.id) === sequence;
    assert(sequence === warm || isKnown, "running sequences are known");
  }
  checkCache(kvCache.pool, kvCache.cache, locks, owned);

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
    assert(tokens <= owner.kv.promptEnd, "an owner will publish what is waited for");
    assert(tokens > owner.kv.lockedPages * kvCache.pool.pageTokens, "what is waited for is not there yet");
  }
  assert(waiting === queue.size, "each sequence that waits and is not paused is in the queue once");
}

function checkResident(sequence: Sequence, pageTokens: number): CacheLock {
  const { lock, lockedPages, pageCount, pages } = sequence.kv;
  assert(lock !== null, "running sequences have a lock");
  assert(lock.node.end === lockedPages * pageTokens, "a lock ends on a page border");
  assert(lock.node.end <= sequence.computed, "locked tokens are computed");
  assert(sequence.computed <= pageCount * pageTokens, "computed tokens have pages");
  assert(pageCount <= Math.ceil(sequence.length / pageTokens), "no page is reserved without a token");
  pathPages(lock.node).forEach((page, index) => {
    assert(pages[index] === page, "the locked part of the page table is the cache's");
  });
  return lock;
}

import { assert } from "../../base/assert.ts";
import type { Lease } from "../cache/cache.ts";
import { checkCache } from "../cache/integrity.ts";
import { pathPages } from "../cache/radix-tree.ts";
import type { Residency } from "../cache/residency.ts";
import type { PageId, SequenceId } from "../core.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { Sequence } from "./sequence.ts";

/** The part of `checkEngine` that costs next to nothing. */
export function checkPageCounts({ pool, cache }: Residency, running: readonly Sequence[]): void {
  const owned = running.reduce((sum, { kv }) => sum + kv.pageCount - kv.leasedPages, 0);
  assert(pool.pagesFree + cache.pagesHeld + owned === pool.pagesTotal, "free + cached + owned = all pages");
}

/** Checks an engine's records against each other; throws InvariantError on the first contradiction. Costs a
 *  walk over everything, some 20 ms for 500 000 pages. */
export function checkEngine(
  residency: Residency,
  queue: WaitQueue,
  running: readonly Sequence[],
  sequences: ReadonlyMap<SequenceId, Sequence>,
  warm: Sequence | null,
): void {
  const leases: Lease[] = [...residency.sources];
  const owned: PageId[] = [];
  for (const sequence of warm === null ? running : [...running, warm]) {
    leases.push(checkResident(sequence, residency.pool.pageTokens));
    const { leasedPages, pageCount, pages } = sequence.kv;
    for (let i = leasedPages; i < pageCount; i++) owned.push(pages[i]! as PageId);
    const isKnown = sequence.state === "running" && sequences.get(sequence.id) === sequence;
    assert(sequence === warm || isKnown, "running sequences are known");
  }
  checkCache(residency.pool, residency.cache, leases, owned);

  let waiting = 0;
  let resident = 0;
  for (const sequence of sequences.values()) {
    assert(sequence.state !== "ended" && sequence.behind >= 1, "known sequences have tokens left to compute");
    if (sequence.state === "running") resident += 1;
    else {
      assert(sequence.kv.lease === null && sequence.kv.pageCount === 0, "waiting sequences hold nothing");
      if (!sequence.isPaused) waiting += 1;
    }
  }
  assert(resident === running.length, "each running sequence is in the list once");
  for (const { waiter, owner, tokens } of queue.prefixWaits()) {
    assert(waiter.state === "waiting" && sequences.get(waiter.id) === waiter, "waiters are known");
    assert(waiter.queued.owner === owner && owner.state === "running" && !owner.isPaused, "owners run");
    assert(tokens <= owner.kv.promptEnd, "an owner will publish what is waited for");
    assert(tokens > owner.kv.leasedPages * residency.pool.pageTokens, "what is waited for is not there yet");
  }
  assert(waiting === queue.size, "each sequence that waits and is not paused is in the queue once");
}

function checkResident(sequence: Sequence, pageTokens: number): Lease {
  const { lease, leasedPages, pageCount, pages } = sequence.kv;
  assert(lease !== null, "running sequences have a lease");
  assert(lease.span.end === leasedPages * pageTokens, "a lease ends on a page border");
  assert(lease.span.end <= sequence.computed, "leased tokens are computed");
  assert(sequence.computed <= pageCount * pageTokens, "computed tokens have pages");
  assert(pageCount <= Math.ceil(sequence.length / pageTokens), "no page is reserved without a token");
  pathPages(lease.span).forEach((page, index) => {
    assert(pages[index] === page, "the leased part of the page table is the cache's");
  });
  return lease;
}

import type { Lease } from "../cache/cache.ts";
import { checkCache } from "../cache/integrity.ts";
import { pathPages } from "../cache/radix-tree.ts";
import type { Residency } from "../cache/residency.ts";
import { assert, type PageId, type SequenceId } from "../core.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { Sequence } from "./sequence.ts";

/** The part of `checkEngine` that costs next to nothing. */
export function checkPageCounts({ pool, cache }: Residency, running: readonly Sequence[]): void {
  const owned = running.reduce((sum, { pageCount, leasedPages }) => sum + pageCount - leasedPages, 0);
  assert(pool.pagesFree + cache.pagesHeld + owned === pool.pagesTotal, "free + cached + owned = all pages");
}

/** Checks an engine's records against each other; throws InvariantError on the first contradiction. Costs a
 *  walk over everything, some 20 ms for 500 000 pages. */
export function checkEngine(
  residency: Residency,
  queue: WaitQueue,
  running: readonly Sequence[],
  sequences: ReadonlyMap<SequenceId, Sequence>,
): void {
  const leases: Lease[] = [...residency.sources];
  const owned: PageId[] = [];
  for (const sequence of running) {
    leases.push(checkResident(sequence, residency.pool.pageTokens));
    for (let i = sequence.leasedPages; i < sequence.pageCount; i++) owned.push(sequence.pages[i]! as PageId);
    assert(sequences.get(sequence.id) === sequence, "who runs is known");
  }
  checkCache(residency.pool, residency.cache, leases, owned);

  let waiting = 0;
  let resident = 0;
  for (const sequence of sequences.values()) {
    assert(sequence.state !== "ended" && sequence.behind >= 1, "who is known has something left to compute");
    if (sequence.state === "running") resident += 1;
    else {
      assert(sequence.lease === null && sequence.pageCount === 0, "who waits holds nothing");
      if (!sequence.isPaused) waiting += 1;
    }
  }
  assert(resident === running.length, "everybody who runs is in the list, once");
  for (const { waiter, owner, tokens } of queue.prefixWaits()) {
    assert(waiter.state === "prefixPending" && sequences.get(waiter.id) === waiter, "who waits is known");
    assert(owner.state === "running" && !owner.isPaused, "who is waited for runs");
    assert(tokens <= owner.promptEnd, "who is waited for will publish what is waited for");
    assert(tokens > owner.leasedPages * residency.pool.pageTokens, "nobody waits for what is there");
  }
  assert(waiting === queue.size, "everybody who waits and is not paused is in the queue, once");
}

function checkResident(sequence: Sequence, pageTokens: number): Lease {
  const { lease, leasedPages, pageCount, pages } = sequence;
  assert(sequence.state === "running" && lease !== null, "who runs has a lease");
  assert(lease.span.end === leasedPages * pageTokens, "a lease ends on a page border");
  assert(lease.span.end <= sequence.computed, "leased tokens are computed");
  assert(sequence.computed <= pageCount * pageTokens, "computed tokens have pages");
  assert(pageCount <= Math.ceil(sequence.length / pageTokens), "no page is reserved without a token");
  pathPages(lease.span).forEach((page, index) => {
    assert(pages[index] === page, "the leased part of the page table is the cache's");
  });
  return lease;
}

import { assert } from "../../base/assert.ts";
import type { PageId } from "../core.ts";
import type { Cache, Lease } from "./cache.ts";
import type { PagePool } from "./page-pool.ts";
import { edgeOf, type Span } from "./radix-tree.ts";

/**
 * Checks that every page of the pool is free, listed by exactly one span, or in `owned`; that spans hang
 * together; and that their lease counts and the eviction order follow from `leases`, which are all leases
 * there are. Costs a walk over everything.
 */
export function checkCache(
  pool: PagePool,
  cache: Cache,
  leases: Iterable<Lease>,
  owned: Iterable<PageId>,
): void {
  const holders = new Uint8Array(pool.pagesTotal);
  const count = (page: PageId): void => {
    assert(!pool.isFree(page) && holders[page] === 0, "a page is free or has one holder");
    holders[page] = 1;
  };

  let pagesHeld = 0;
  let pagesLeased = 0;
  let pagesWanted = 0;
  const { evictionOrder } = cache;
  const leaseCounts = countLeases(leases);
  const evictable = new Set<Span>();
  for (const { span } of cache.spans()) {
    checkShape(span, pool.pageTokens, cache.isObserved);
    checkReaders(span);
    span.pages.forEach(count);
    pagesHeld += span.pages.length;
    if (span.leases > 0) pagesLeased += span.pages.length;
    else if (evictionOrder.isWanted(span)) pagesWanted += span.pages.length;
    assert(span.leases === (leaseCounts.get(span) ?? 0), "a span counts the leases that pass through it");
    leaseCounts.delete(span);
    if (span.parent === null)
      assert(span.leases > 0 || span.readers > 0 || !span.isLeaf, "an empty tree is forgotten");
    else if (span.leases === 0) evictable.add(span);
  }
  assert(leaseCounts.size === 0, "leases pin spans of the tree");
  assert(cache.pagesHeld === pagesHeld, "the cache counts its pages");
  assert(cache.pagesEvictable === pagesHeld - pagesLeased, "the cache counts its leased pages");
  assert(cache.pagesWanted === pagesWanted, "the cache counts the pages that readers wait for");
  checkOrder(evictionOrder, evictable);

  for (const page of owned) count(page);
  const used = holders.reduce((sum, held) => sum + held, 0);
  assert(pool.pagesFree + used === pool.pagesTotal, "free + cached + owned = all pages");
}

function countLeases(leases: Iterable<Lease>): Map<Span, number> {
  const counts = new Map<Span, number>();
  for (const lease of leases) {
    for (let span: Span | null = lease.span; span !== null; span = span.parent) {
      counts.set(span, (counts.get(span) ?? 0) + 1);
    }
  }
  return counts;
}

function checkShape(span: Span, pageTokens: number, isHashed: boolean): void {
  const listedEnd = span.isLeaf ? Math.ceil(span.end / pageTokens) : Math.floor(span.end / pageTokens);
  assert(span.pages.length === listedEnd - Math.floor(span.start / pageTokens), "a span lists its own pages");
  const wholePages = Math.floor(span.end / pageTokens) - Math.floor(span.start / pageTokens);
  assert(
    span.hashes.length === (isHashed ? wholePages : 0),
    "a span has the hashes of the whole pages that end in it",
  );
  assert(span.tokens.length > 0 || span.parent === null, "only a root is empty");
  if (span.parent === null) return;
  assert(span.start === span.parent.end, "a span begins where its parent ends");
  assert(span.parent.children.get(span.edge) === span, "a parent finds its child");
}

/** Its readers are counted, and each is where the tree agrees with it no further. */
function checkReaders(span: Span): void {
  let readers = span.ending?.size ?? 0;
  for (const child of span.children.values()) readers += child.readers;
  assert(span.readers === readers, "a span counts the readers that pass through it");
  for (const { tokens, limit, depth, span: at, sharing } of span.ending ?? []) {
    assert(at === span && depth <= Math.min(limit, span.end), "a reader knows the span where its match ends");
    assert(depth > span.start || span.parent === null, "a match ends inside of a span, or at its end");
    for (let i = span.start; i < depth; i++) {
      assert(tokens[i] === span.tokens[i - span.start], "a reader's match is what it reads");
    }
    if (depth === limit) continue;
    const edge = edgeOf(tokens, depth, sharing);
    const goesOn = depth < span.end ? edge === span.tokens[depth - span.start] : span.children.has(edge);
    assert(!goesOn, "a reader's match is the longest");
  }
}

function checkOrder(order: Cache["evictionOrder"], evictable: Set<Span>): void {
  let isWanted = false;
  for (const span of order) {
    assert(!isWanted || order.isWanted(span), "spans that readers wait for are evicted last");
    isWanted ||= order.isWanted(span);
    assert(evictable.delete(span), "only spans without leases are in the eviction order, once");
    for (const child of span.children.values())
      assert(!evictable.has(child), "children are evicted before parents");
  }
  assert(evictable.size === 0, "every span without leases can be evicted");
}

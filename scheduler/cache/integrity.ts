import { assert } from "../../base/assert.ts";
import type { PageId, StateSlot } from "../core.ts";
import type { Cache, CacheLock } from "./cache.ts";
import type { Checkpoints } from "./checkpoints.ts";
import type { PagePool } from "./page-pool.ts";
import { type Checkpoint, deepest, edgeOf, type RadixNode } from "./radix-tree.ts";

/**
 * Checks that every page of the pool is free, listed by exactly one node, or in `owned`, and that the tree is well
 * formed. Lock counts and eviction order must follow from `locks`, the complete list of locks. O(pages + nodes).
 */
export function checkCache(
  pool: PagePool,
  cache: Cache,
  locks: Iterable<CacheLock>,
  owned: Iterable<PageId>,
): void {
  const holders = new Uint8Array(pool.pagesTotal);
  const count = (page: PageId): void => {
    assert(!pool.isFree(page) && holders[page] === 0, "a page is free or has one holder");
    holders[page] = 1;
  };

  let pagesHeld = 0;
  let pagesLocked = 0;
  let pagesProtected = 0;
  const { evictionOrder } = cache;
  const lockCounts = countLocks(locks);
  const evictable = new Set<RadixNode>();
  for (const { node } of cache.nodes()) {
    checkShape(node, pool.pageTokens, cache.isObserved);
    checkWaiters(node);
    checkKept(node);
    node.pages.forEach(count);
    pagesHeld += node.pages.length;
    if (node.locks > 0) pagesLocked += node.pages.length;
    else if (evictionOrder.isProtected(node)) pagesProtected += node.pages.length;
    assert(node.locks === (lockCounts.get(node) ?? 0), "a node counts the locks that pass through it");
    lockCounts.delete(node);
    if (node.parent === null)
      assert(node.locks > 0 || node.waiters > 0 || !node.isLeaf, "an empty tree is forgotten");
    else if (node.locks === 0) evictable.add(node);
  }
  assert(lockCounts.size === 0, "locks pin nodes of the tree");
  assert(cache.pagesHeld === pagesHeld, "the cache counts its pages");
  assert(cache.pagesEvictable === pagesHeld - pagesLocked, "the cache counts its locked pages");
  assert(cache.pagesProtected === pagesProtected, "the cache counts the pages that waiters wait for");
  checkOrder(evictionOrder, evictable);

  for (const page of owned) count(page);
  const used = holders.reduce((sum, held) => sum + held, 0);
  assert(pool.pagesFree + used === pool.pagesTotal, "free + cached + owned = all pages");
}

/**
 * Checks that every slot is free, one checkpoint's, or in `owned`, and that checkpoints count their `pins`.
 * Pinned checkpoints that the tree has dropped keep their slots.
 */
export function checkSlots(
  cache: Cache,
  checkpoints: Checkpoints,
  owned: Iterable<StateSlot>,
  pins: readonly Checkpoint[],
): void {
  const { pool, kept, available } = checkpoints;
  const holders = new Uint8Array(pool.total);
  const count = (slot: StateSlot): void => {
    assert(!pool.isFree(slot) && holders[slot] === 0, "a slot is free or has one holder");
    holders[slot] = 1;
  };
  const listed = new Set<Checkpoint>();
  for (const { node } of cache.nodes()) for (const checkpoint of node.checkpoints) listed.add(checkpoint);
  assert(listed.size === kept.size && listed.isSubsetOf(kept), "the tree's checkpoints are the known ones");
  let pinned = 0;
  for (const checkpoint of new Set([...kept, ...pins])) {
    count(checkpoint.slot);
    assert((checkpoint.node !== null) === kept.has(checkpoint), "a dropped checkpoint has no node");
    const readers = pins.filter((other) => other === checkpoint).length;
    assert(checkpoint.pins === readers, "a checkpoint counts its pins");
    if (readers > 0 && checkpoint.node !== null) pinned += 1;
  }
  assert(available === pool.freeCount + kept.size - pinned, "available slots are counted");
  for (const slot of owned) count(slot);
  const used = holders.reduce((sum, held) => sum + held, 0);
  assert(pool.freeCount + used === pool.total, "free + kept + owned = all slots");
}

/** Checks the checkpoints of a node, and that each waiter knows its deepest one. */
function checkKept(node: RadixNode): void {
  let { start } = node;
  let kept = node.checkpoints.length;
  for (const checkpoint of node.checkpoints) {
    const { depth } = checkpoint;
    assert(
      checkpoint.node === node && start < depth && depth <= node.end,
      "checkpoints rise within their node",
    );
    start = depth;
  }
  for (const child of node.children.values()) kept += child.kept;
  assert(node.kept === kept, "a node counts the checkpoints below it");
  for (const { checkpoint, depth } of node.ending ?? []) {
    if (checkpoint !== undefined)
      assert(checkpoint === deepest(node, depth), "a waiter knows its deepest checkpoint");
  }
}

function countLocks(locks: Iterable<CacheLock>): Map<RadixNode, number> {
  const counts = new Map<RadixNode, number>();
  for (const lock of locks) {
    for (let node: RadixNode | null = lock.node; node !== null; node = node.parent) {
      counts.set(node, (counts.get(node) ?? 0) + 1);
    }
  }
  return counts;
}

function checkShape(node: RadixNode, pageTokens: number, isHashed: boolean): void {
  const listedEnd = node.isLeaf ? Math.ceil(node.end / pageTokens) : Math.floor(node.end / pageTokens);
  assert(node.pages.length === listedEnd - Math.floor(node.start / pageTokens), "a node lists its own pages");
  const wholePages = Math.floor(node.end / pageTokens) - Math.floor(node.start / pageTokens);
  assert(
    node.hashes.length === (isHashed ? wholePages : 0),
    "a node has the hashes of the whole pages that end in it",
  );
  assert(node.tokens.length > 0 || node.parent === null, "only a root is empty");
  if (node.parent === null) return;
  assert(node.start === node.parent.end, "a node begins where its parent ends");
  assert(node.parent.children.get(node.edge) === node, "a parent finds its child");
}

/** Checks that a node counts its waiters, and that each waiter's match is the longest. */
function checkWaiters(node: RadixNode): void {
  let waiters = node.ending?.size ?? 0;
  for (const child of node.children.values()) waiters += child.waiters;
  assert(node.waiters === waiters, "a node counts the waiters that pass through it");
  for (const { tokens, limit, depth, node: at, sharing } of node.ending ?? []) {
    assert(at === node && depth <= Math.min(limit, node.end), "a waiter knows the node where its match ends");
    assert(depth > node.start || node.parent === null, "a match ends inside of a node, or at its end");
    for (let i = node.start; i < depth; i++) {
      assert(tokens[i] === node.tokens[i - node.start], "a waiter's tokens equal those of its match");
    }
    if (depth === limit) continue;
    const edge = edgeOf(tokens, depth, sharing);
    const continues = depth < node.end ? edge === node.tokens[depth - node.start] : node.children.has(edge);
    assert(!continues, "a waiter's match is the longest");
  }
}

function checkOrder(order: Cache["evictionOrder"], evictable: Set<RadixNode>): void {
  let isProtected = false;
  for (const node of order) {
    assert(!isProtected || order.isProtected(node), "nodes that waiters wait for are evicted last");
    isProtected ||= order.isProtected(node);
    assert(evictable.delete(node), "only nodes without locks are in the eviction order, once");
    for (const child of node.children.values())
      assert(!evictable.has(child), "children are evicted before parents");
  }
  assert(evictable.size === 0, "every node without locks can be evicted");
}

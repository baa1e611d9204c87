import { assert } from "../../base/assert.ts";
import { part } from "../../base/part.ts";
import type { PageId, Sharing } from "../core.ts";
import { type CacheStates, type CheckpointObserver, Checkpoints, type SavedState } from "./checkpoints.ts";
import { type EvictionPolicy, ProtectedLast } from "./eviction.ts";
import { EvictionLog } from "./eviction-log.ts";
import { hashPages, keyHash, privateHash } from "./page-hash.ts";
import type { PagePool } from "./page-pool.ts";
import {
  advanceWaiters,
  attach,
  createRoot,
  deepest,
  descend,
  detach,
  edgeOf,
  type MatchPosition,
  moveWaiter,
  type NodeKind,
  type PrefixWaiter,
  type RadixNode,
  recedeWaiters,
  split,
  splitWaiters,
} from "./radix-tree.ts";

/**
 * A lock on the path from the root to `node`, whose pages are not evicted. Only the cache makes, moves and
 * ends locks.
 */
export interface CacheLock {
  readonly sharing: Sharing;
  /** The deepest locked node: the lock covers tokens [0, node.end). */
  readonly node: RadixNode;
}

/** A lock that may end inside of a page. It moves on to the node that takes over that page. */
interface ExactLock extends CacheLock {
  node: RadixNode;
}

/** The result of a lookup. */
export interface Match {
  /** Tokens found, exact to the token. */
  readonly tokens: number;
  /** Matched tokens that need no prefill: with states, those before the deepest checkpoint. */
  readonly usable: number;
  /** Pages that are evictable now, and not once the match and the source of its copy are locked. */
  readonly pagesPinned: number;
}

/** Synchronous callbacks on insertion and eviction. */
export interface CacheObserver extends Partial<CheckpointObserver> {
  /** Records a new leaf: the whole pages that end in it are cached now. */
  inserted(node: RadixNode): void;
  /**
   * Records that whole pages from index `from` of the path that ends with `node` are about to be evicted;
   * they are its last.
   */
  evicting(node: RadixNode, from: number): void;
  /** Records that the last `count` pages of a leaf are about to be evicted for others; their contents are valid. */
  dropping?(leaf: RadixNode, count: number): void;
}

/**
 * The prefix cache: one radix tree per key (Sharing) over the pages of computed tokens (RadixAttention,
 * arXiv:2312.07104 §3). Locks pin nodes; `evict` frees the least recently used ones. A prompt that begins with a
 * public text is in the tree of its public key. It branches off by its own key where the public text ends.
 *
 * The holder of a page, along the token axis of a running sequence:
 *
 *   0 ────────────── lock end ─────────── computed ─────────── reserved
 *   │ nodes', pinned by │ the sequence's own,  │ the sequence's own, │
 *   │ the lock          │ complete or partial  │ not yet written     │
 *   └───────────────────┴─ insert() moves this border to the right ──┘
 *
 * Locks end on page borders, so that a sequence writes into no page of the tree. A match that ends inside a
 * page is used by copying that page (copy-on-write). `lockSource` pins it until the copying step is done (up to its
 * border, or the leaf's end). A node that ends inside a page and is pinned is therefore a leaf, or has a branch
 * that is pinned.
 */
export class Cache {
  readonly #pool: PagePool;
  readonly #observer: CacheObserver | null;
  readonly #roots = new Map<string, RadixNode>();
  readonly #eviction: EvictionPolicy;
  /** Checkpoints and state slots; null: the model has no states. */
  readonly checkpoints: Checkpoints | null;
  readonly evictions: EvictionLog;
  readonly #exactLocks = new Set<ExactLock>();
  /** Pages listed by nodes, and by nodes with locks. */
  #pagesHeld = 0;
  #pagesLocked = 0;
  #pagesEvictedTotal = 0;

  constructor(
    pool: PagePool,
    observer: CacheObserver | null = null,
    states: CacheStates | null = null,
    eviction: EvictionPolicy = new ProtectedLast(states !== null),
  ) {
    this.#pool = pool;
    this.#observer = observer;
    this.#eviction = eviction;
    this.evictions = new EvictionLog(pool.pageTokens);
    this.checkpoints = states === null ? null : new Checkpoints(states, eviction, observer);
  }

  /** True if there is an observer, for which pages are hashed. */
  get isObserved(): boolean {
    return this.#observer !== null;
  }

  get pagesHeld(): number {
    return this.#pagesHeld;
  }

  /** Pages that `evict` could free now. */
  get pagesEvictable(): number {
    return this.#pagesHeld - this.#pagesLocked;
  }

  /** Evictable pages that waiters wait for. */
  get pagesProtected(): number {
    return this.#eviction.pagesProtected;
  }

  /** Pages that `evict` has freed so far. */
  get pagesEvictedTotal(): number {
    return this.#pagesEvictedTotal;
  }

  /**
   * Looks up the longest cached prefix of tokens [0, limit). Changes nothing, not even the eviction order.
   */
  match(tokens: Int32Array, limit: number, sharing: Sharing): Match {
    const position = this.#find(tokens, limit, sharing);
    if (position === null) return { tokens: 0, usable: 0, pagesPinned: 0 };
    const { node, depth } = position;
    const usable = this.checkpoints === null ? depth : (deepest(node, depth)?.depth ?? 0);
    return {
      tokens: depth,
      usable,
      pagesPinned: this.#pinnable({ node: nodeAt(node, usable), depth: usable }),
    };
  }

  /**
   * Looks up a waiter's prompt, and keeps its match up to date from now on. The matched nodes count as used
   * now, and the eviction policy may protect them.
   */
  track(waiter: PrefixWaiter): void {
    assert(waiter.node === null, "a waiter is tracked once");
    const { node, depth } = descend(
      this.#rootOf(waiter.sharing),
      waiter.tokens,
      waiter.limit,
      waiter.sharing,
    );
    if (this.checkpoints !== null) waiter.checkpoint = deepest(node, depth);
    moveWaiter(waiter, node, depth);
    for (let at: RadixNode | null = node; at !== null; at = at.parent) {
      at.waiters += 1;
      this.#eviction.tracked(at);
    }
  }

  /**
   * Stops tracking a waiter. `givesUp`: nodes that no other waiter or branch needs are evicted before all
   * others.
   */
  untrack(waiter: PrefixWaiter, givesUp = false): void {
    assert(waiter.node !== null, "the waiter is tracked");
    const { node: deepest } = waiter;
    let root = deepest;
    for (let node: RadixNode | null = root; node !== null; node = node.parent) {
      node.waiters -= 1;
      this.#eviction.changed(node);
      root = node;
    }
    moveWaiter(waiter, null, waiter.depth);
    if (givesUp) this.#giveUp(deepest);
    this.#forget(root);
  }

  /** Moves this path's unshared nodes to the LRU end, children first. */
  #giveUp(deepest: RadixNode): void {
    const path: RadixNode[] = [];
    for (let node = deepest; node.parent !== null; node = node.parent) {
      const isLast = node.isLeaf || (node.children.size === 1 && path.length > 0);
      if (!isLast || node.waiters > 0 || node.locks > 0) break;
      path.push(node);
    }
    for (const node of path.reverse()) this.#eviction.giveUp(node);
  }

  /** `Match.pagesPinned` of the waiter's usable match. */
  pagesPinnedBy({ node, usable }: PrefixWaiter): number {
    assert(node !== null, "the waiter is tracked");
    return this.#pinnable({ node: nodeAt(node, usable), depth: usable });
  }

  /** Locks the longest cached prefix of tokens [0, limit) that is whole pages. May split a node. */
  lock(tokens: Int32Array, limit: number, sharing: Sharing): CacheLock {
    const { pageTokens } = this.#pool;
    let position = descend(this.#rootOf(sharing), tokens, limit, sharing);
    const whole = position.depth - (position.depth % pageTokens);
    if (whole < position.depth) position = { node: nodeAt(position.node, whole), depth: whole };
    const node = this.#cutAt(position);
    this.#pin(node, null);
    return { sharing, node };
  }

  /**
   * Locks the page in which the cached prefix of tokens [0, depth) ends, where `match` has found a `depth`
   * inside of a page. May split a node.
   */
  lockSource(
    tokens: Int32Array,
    depth: number,
    sharing: Sharing,
  ): { readonly lock: CacheLock; readonly page: PageId } {
    assert(depth % this.#pool.pageTokens !== 0, "whole pages are not copied");
    const lock = this.hold(tokens, depth, sharing);
    const page = lock.node.pages.at(-1);
    assert(page !== undefined, "the node lists the page in which the match ends");
    return { lock, page };
  }

  /**
   * Locks the cached prefix of tokens [0, depth). Of the page in which it ends it locks as many tokens as the
   * node has. May split a node.
   */
  hold(tokens: Int32Array, depth: number, sharing: Sharing): CacheLock {
    const { pageTokens } = this.#pool;
    const position = this.#find(tokens, depth, sharing);
    assert(position !== null && position.depth === depth, "locked tokens are cached");
    const listing = listingNode(position, pageTokens);
    const border = Math.ceil(depth / pageTokens) * pageTokens;
    const node = this.#cutAt({ node: listing, depth: Math.min(border, listing.end) });
    this.#pin(node, null);
    const lock: ExactLock = { sharing, node };
    this.#exactLocks.add(lock);
    return lock;
  }

  /** Ends a lock. Its nodes become the most recently used ones, unless another lock pins them. */
  release(lock: CacheLock): void {
    this.#exactLocks.delete(lock);
    let root = lock.node;
    for (let node: RadixNode | null = lock.node; node !== null; node = node.parent) {
      assert(node.locks > 0, "a lock is released once");
      node.locks -= 1;
      if (node.locks === 0 && node.parent !== null) {
        this.#pagesLocked -= node.pages.length;
        this.#list(node);
      }
      root = node;
    }
    this.#forget(root);
  }

  /**
   * Ends a lock on tokens whose KV may be wrong: frees the nodes of its path that no other lock or branch
   * needs.
   */
  discard(lock: CacheLock): void {
    this.release(lock);
    for (let node = lock.node; node.parent !== null && node.isLeaf && node.locks === 0; ) {
      const { parent } = node;
      // Shortening a branch may have taken out its stem as well.
      if (parent.children.get(node.edge) === node) this.#shorten(node, node.pages.length);
      node = parent;
    }
  }

  /**
   * Hands the computed tokens [lock end, end) and their pages over to the tree. Returns a lock on all of it,
   * which replaces the given one. `pages` is the sequence's page table. Tokens that are already in the tree
   * keep its pages: the sequence's duplicates are freed and the table is rewritten. `end` is on a page
   * border. May split a node.
   */
  insert(lock: CacheLock, tokens: Int32Array, end: number, pages: Int32Array): CacheLock {
    assert(end % this.#pool.pageTokens === 0, "a running sequence hands over whole pages");
    return this.#extend(lock, tokens, end, pages, "prompt");
  }

  /**
   * As `insert`, for a sequence that ends: `end` may be inside of a page, and the lock is released. Slots of
   * `states` become checkpoints.
   */
  insertLast(
    lock: CacheLock,
    tokens: Int32Array,
    end: number,
    pages: Int32Array,
    states: readonly SavedState[] = [],
  ): void {
    const last = this.#extend(lock, tokens, end, pages, "end");
    for (const state of states) this.checkpoints!.add(last.node, state);
    this.release(last);
  }

  /**
   * Frees at least `pages` pages if that many can be evicted: leaves without waiters first, the least recently
   * used of those first, their tail pages first. Returns how many it freed. `by`: cache key of the sequence that
   * needs them.
   */
  evict(pages: number, by = ""): number {
    const freeBefore = this.#pool.pagesFree;
    while (this.#pool.pagesFree - freeBefore < pages) {
      const leaf = this.#eviction.first;
      if (leaf === null) break;
      const count = Math.min(pages - (this.#pool.pagesFree - freeBefore), leaf.pages.length);
      const reason = this.#eviction.reasonOf?.(leaf) ?? "least_recent";
      this.evictions.note(leaf, count, { reason, by, pagesEvictable: this.pagesEvictable });
      this.#observer?.dropping?.(leaf, count);
      this.#shorten(leaf, count);
    }
    const freed = this.#pool.pagesFree - freeBefore;
    this.#pagesEvictedTotal += freed;
    return freed;
  }

  /** All nodes, roots included, parents first: for checks. */
  *nodes(): Generator<{ readonly key: string; readonly node: RadixNode }> {
    for (const [key, root] of this.#roots) {
      const stack = [root];
      for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
        yield { key, node };
        for (const child of node.children.values()) stack.push(child);
      }
    }
  }

  /** Roots of all trees, each with its cache key as edge. */
  get roots(): Iterable<RadixNode> {
    return this.#roots.values();
  }

  /** Nodes in the order in which they would be evicted, stems after their branches. */
  get evictionOrder(): Pick<EvictionPolicy, "isProtected" | typeof Symbol.iterator> {
    return this.#eviction;
  }

  #rootOf(sharing: Sharing): RadixNode {
    const key = rootKey(sharing);
    let root = this.#roots.get(key);
    if (root === undefined) {
      root = createRoot(key);
      this.#roots.set(key, root);
    }
    return root;
  }

  #forget(root: RadixNode): void {
    if (root.locks === 0 && root.waiters === 0 && root.isLeaf) this.#roots.delete(`${root.edge}`);
  }

  /** Makes a node without locks evictable, as the most recently used one. */
  #list(node: RadixNode): void {
    if (node.locks === 0 && node.parent !== null) this.#eviction.add(node);
  }

  /** Unlocked pages of the path that ends with the page at `position`. */
  #pinnable(position: MatchPosition): number {
    const { pageTokens } = this.#pool;
    let pages = 0;
    for (
      let node: RadixNode | null = listingNode(position, pageTokens);
      node !== null && node.locks === 0;
      node = node.parent
    ) {
      const needed = Math.ceil(position.depth / pageTokens) - Math.floor(node.start / pageTokens);
      pages += Math.min(needed, node.pages.length);
    }
    return pages;
  }

  #find(tokens: Int32Array, limit: number, sharing: Sharing): MatchPosition | null {
    const root = this.#roots.get(rootKey(sharing));
    return root === undefined ? null : descend(root, tokens, limit, sharing);
  }

  /**
   * Returns the node that ends at the position; splits a node that continues after it. The caller locks it at
   * once.
   */
  #cutAt({ node, depth }: MatchPosition): RadixNode {
    if (depth === node.end) return node;
    const upper = split(node, depth, this.#pool.pageTokens);
    splitWaiters(upper, node);
    this.#eviction.shrank(node, upper.pages.length);
    this.#eviction.changed(node);
    this.#list(upper);
    return upper;
  }

  /** Locks the nodes from `deepest` upward, short of `above`. */
  #pin(deepest: RadixNode, above: RadixNode | null): void {
    for (let node: RadixNode | null = deepest; node !== above && node !== null; node = node.parent) {
      if (node.locks === 0 && node.parent !== null) {
        this.#pagesLocked += node.pages.length;
        this.#eviction.remove(node);
      }
      node.locks += 1;
    }
  }

  #extend(lock: CacheLock, tokens: Int32Array, end: number, pages: Int32Array, kind: NodeKind): CacheLock {
    const { sharing, node: from } = lock;
    assert(end >= from.end, "locked tokens are computed");
    if (end === from.end) return lock;
    const { publicTokens } = sharing;
    // A public text ends with a node.
    if (from.end < publicTokens && publicTokens < end)
      return this.#extend(this.#extend(lock, tokens, publicTokens, pages, kind), tokens, end, pages, kind);
    const node = this.#merge(lock, tokens, end, pages, kind);
    this.#pin(node, from);
    return { sharing, node };
  }

  /** Inserts tokens [from.end, end) into the tree; returns the node that ends there. The caller locks it at once. */
  #merge(
    { sharing, node: from }: CacheLock,
    tokens: Int32Array,
    end: number,
    pages: Int32Array,
    kind: NodeKind,
  ): RadixNode {
    const { pageTokens } = this.#pool;
    const position = descend(from, tokens, end, sharing);
    const isKnown = position.depth === end;
    const firstNew = isKnown ? Math.ceil(end / pageTokens) : Math.floor(position.depth / pageTokens);
    this.#replaceDuplicates(from, position, pages, firstNew);
    const stem = this.#cutAt(position);
    if (isKnown) return stem;

    if (stem.isLeaf && stem.parent !== null && stem.end % pageTokens !== 0) this.#dropPages(stem, 1);
    const leafPages: PageId[] = [];
    for (let index = firstNew; index * pageTokens < end; index++) leafPages.push(pages[index]! as PageId);
    // A copy: a view would keep the whole sequence in memory for as long as the node.
    const hashes =
      this.#observer === null
        ? unhashed
        : hashPages(
            tokens,
            firstNew,
            Math.floor(end / pageTokens),
            pageTokens,
            hashBefore(stem, firstNew * pageTokens, sharing),
          );
    const edge = edgeOf(tokens, position.depth, sharing);
    const leaf = attach(stem, edge, tokens.slice(position.depth, end), leafPages, hashes);
    leaf.kind = kind;
    this.#pagesHeld += leafPages.length;
    advanceWaiters(leaf);
    this.#list(leaf);
    this.#observer?.inserted(leaf);
    if (stem.locks > 0 && stem.end % pageTokens !== 0) this.#passOn(stem, leaf);
    return leaf;
  }

  /** Moves exact locks that end with a stem on to the leaf that lists the stem's last page now. */
  #passOn(stem: RadixNode, leaf: RadixNode): void {
    const moved = [...this.#exactLocks].filter(({ node }) => node === stem);
    if (moved.length === 0) return;
    const { pageTokens } = this.#pool;
    const border = Math.ceil(stem.end / pageTokens) * pageTokens;
    const node = this.#cutAt({ node: leaf, depth: Math.min(border, leaf.end) });
    for (const lock of moved) {
      lock.node = node;
      this.#pin(node, stem);
    }
  }

  /** Frees the table's pages from `from.end` to page `firstNew` and puts the tree's own in their place. */
  #replaceDuplicates(from: RadixNode, position: MatchPosition, table: Int32Array, firstNew: number): void {
    const { pageTokens } = this.#pool;
    const first = from.end / pageTokens;
    for (let index = first; index < firstNew; index++) this.#pool.release(table[index]! as PageId);
    const wholeEnd = Math.min(firstNew, Math.floor(position.depth / pageTokens));
    for (let node = position.node; node !== from; node = node.parent!) {
      const nodeFirst = Math.floor(node.start / pageTokens);
      for (let i = 0; i < node.pages.length && nodeFirst + i < wholeEnd; i++) {
        table[nodeFirst + i] = node.pages[i]!;
      }
    }
  }

  /**
   * Frees up to `pages` pages at the end of an unpinned leaf. Removes the leaf with its last page; cuts a stem that
   * loses its last branch back to its last whole page.
   */
  #shorten(leaf: RadixNode, pages: number): void {
    assert(leaf.locks === 0 && leaf.isLeaf, "only leaves without locks are evicted");
    this.#dropPages(leaf, pages);
    this.#cutToPages(leaf);
  }

  /** Cuts the tokens of a leaf back to those of its whole pages; removes leaves left without tokens. */
  #cutToPages(leaf: RadixNode): void {
    const { pageTokens } = this.#pool;
    const first = Math.floor(leaf.start / pageTokens);
    const end = (first + leaf.pages.length) * pageTokens;
    const wholeEnd = Math.floor(Math.min(leaf.end, Math.max(end, leaf.start)) / pageTokens);
    this.#observer?.evicting(leaf, wholeEnd);
    this.checkpoints?.cut(leaf, end);
    recedeWaiters(leaf, end);
    if (end > leaf.start) {
      leaf.hashes = part(leaf.hashes, 0, wholeEnd - first);
      leaf.tokens = part(leaf.tokens, 0, Math.min(leaf.tokens.length, end - leaf.start));
      return;
    }
    const parent = leaf.parent!;
    this.#eviction.remove(leaf);
    detach(leaf);
    if (!parent.isLeaf) return;
    if (parent.parent === null) this.#forget(parent);
    else if (parent.locks === 0) this.#cutToPages(parent);
  }

  /** Releases the last `count` pages of a node. */
  #dropPages(node: RadixNode, count: number): void {
    for (const page of node.pages.splice(node.pages.length - count, count)) this.#pool.release(page);
    this.#pagesHeld -= count;
    if (node.locks > 0) this.#pagesLocked -= count;
    this.#eviction.shrank(node, count);
  }
}

/** Hashes of a cache without an observer, which computes none. */
const unhashed = new Float64Array(0);

/** The ancestor-or-self of `node` that contains or ends at `depth`. */
function nodeAt(node: RadixNode, depth: number): RadixNode {
  let at = node;
  while (at.parent !== null && at.start >= depth) at = at.parent;
  return at;
}

/** The key of the tree that a prompt is in. */
function rootKey({ key, publicKey, publicTokens }: Sharing): string {
  return publicTokens > 0 ? publicKey : key;
}

/**
 * The hash of the whole pages of tokens [0, node.end), which seeds the hash of the page that begins at token
 * `start`.
 */
function hashBefore(node: RadixNode, start: number, sharing: Sharing): number {
  const { key, publicTokens } = sharing;
  for (let at: RadixNode | null = node; at !== null; at = at.parent) {
    const last = at.hashes.at(-1);
    if (last !== undefined) return start === publicTokens ? privateHash(last, key) : last;
  }
  return keyHash(rootKey(sharing));
}

/**
 * The node that lists the page in which `position` ends: the position's own, or any branch where a fork
 * divides the page.
 */
function listingNode(position: MatchPosition, pageTokens: number): RadixNode {
  let node = position.node;
  while (!node.isLeaf && Math.ceil(position.depth / pageTokens) > Math.floor(node.end / pageTokens)) {
    node = node.children.values().next().value!;
  }
  return node;
}

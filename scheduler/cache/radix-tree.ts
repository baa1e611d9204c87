import { assert } from "../../base/assert.ts";
import { part } from "../../base/part.ts";
import type { TokenId } from "../../base/token.ts";
import type { PageId, Sharing, StateSlot } from "../core.ts";

/**
 * The key of a node below its parent: its first token; where a public text ends, the token and the cache key.
 */
export type Edge = TokenId | string;

/** The edge that tokens from `at` on follow. */
export function edgeOf(tokens: Int32Array, at: number, { key, publicTokens }: Sharing): Edge {
  return at === publicTokens && at > 0 ? `${tokens[at]}:${key}` : tokens[at]!;
}

/** The end of the tokens that may follow one edge from `at` on: a public text ends an edge. */
export function edgeLimit(at: number, limit: number, { publicTokens }: Sharing): number {
  return at < publicTokens ? Math.min(limit, publicTokens) : limit;
}

/** Part of a sequence: inserted while it computes its prompt, or at its end, where it is mostly output. */
export type NodeKind = "prompt" | "end";

/**
 * A node of the radix tree: tokens [start, end) of every sequence that passes through it, and pages.
 *
 * Nodes begin and end anywhere, also inside a page, so that matching is exact to the token. (RadixAttention,
 * arXiv:2312.07104 §3, has pages of one token; its descendants match whole pages only.) Each branch lists the
 * page that a fork divides, and the stem never does. The branch's page holds the stem's tokens in it as well:
 *
 *   token axis   0        16       32       48         pages of 16 tokens
 *   stem         ├───────────────────┤ 35              lists p0 p1         (whole pages only: it has children)
 *   branch X                         ├─────────┤ 53    lists p2 p3         p2 = tokens 32..47 as X has them
 *   branch Y                         ├──────┤ 46       lists p4            p4 = tokens 32..34 again, then Y's own
 *
 * So every page is listed once in the tree, and the page lists along a path form that path's page table. A
 * node lists pages floor(start / T) … (leaf ? ceil(end / T) : floor(end / T)) - 1 of its path, with T tokens
 * a page. A listed page is never written.
 */
export class RadixNode {
  parent: RadixNode | null;
  start: number;
  tokens: Int32Array;
  pages: PageId[];
  /**
   * Hashes of the whole pages that end in the node: floor(start / T) … floor(end / T) - 1 (page-hash.ts).
   * Empty in a cache without an observer.
   */
  hashes: Float64Array;
  /** The key below its parent; of a root, the key of its tree. */
  edge: Edge;
  readonly children = new Map<Edge, RadixNode>();
  /** The part of a sequence whose KV it holds. */
  kind: NodeKind = "prompt";
  /** Number of sequences that began from it. */
  reads = 0;
  /** Number of its leading whole pages that the lower tier has; 0 without a tier. */
  stored = 0;
  /** Checkpoints with start < depth ≤ end, by rising depth; and the number of those here or below. */
  checkpoints: readonly Checkpoint[] = [];
  kept = 0;
  /** Number of locks that end here or below. With any, the node is neither evicted nor shortened. */
  locks = 0;
  /**
   * Number of waiters whose match ends here or below; and the waiters whose match ends here, null for none.
   */
  waiters = 0;
  ending: Set<PrefixWaiter> | null = null;
  /** The LRU list that it is in; null: it cannot be evicted. */
  order: LruList | null = null;
  /** Its neighbours in that list; null at the ends, and outside of a list. */
  older: RadixNode | null = null;
  newer: RadixNode | null = null;

  constructor(
    parent: RadixNode | null,
    edge: Edge,
    start: number,
    tokens: Int32Array,
    pages: PageId[],
    hashes: Float64Array,
  ) {
    this.parent = parent;
    this.edge = edge;
    this.start = start;
    this.tokens = tokens;
    this.pages = pages;
    this.hashes = hashes;
  }

  get end(): number {
    return this.start + this.tokens.length;
  }

  get isLeaf(): boolean {
    return this.children.size === 0;
  }
}

/**
 * Reason for a checkpoint. It is at the end of a sequence, of a match, of public text or of a prompt, or at a
 * distance from a prompt's end. Others were loaded from the lower tier.
 */
export type CheckpointKind = "end" | "branch" | "public" | "prompt" | "distant" | "loaded";

/** The state of a prefix that the radix tree keeps: the state after its first `depth` tokens. */
export class Checkpoint {
  readonly depth: number;
  readonly slot: StateSlot;
  /** The node whose tokens include the last one: start < depth ≤ end. Null: the tree has dropped it. */
  node: RadixNode | null;
  /** Sequences that read it or hold it. With any, its slot is not written. */
  pins = 0;
  readonly kind: CheckpointKind;
  /** Number of sequences that began from it. */
  reads = 0;
  /** Number of leading pieces of its state that the lower tier has; 0 without a tier. */
  stored = 0;
  /** Time of its last use by the measure of the policy, and milliseconds that a read saves. */
  usedAt = 0;
  savedMs = 0;

  constructor(node: RadixNode, depth: number, slot: StateSlot, kind: CheckpointKind) {
    this.node = node;
    this.depth = depth;
    this.slot = slot;
    this.kind = kind;
  }
}

/** A position in the tree: `depth` tokens from the root, in `node` (start < depth ≤ end, or the root). */
export interface MatchPosition {
  readonly node: RadixNode;
  readonly depth: number;
}

/** The root of the tree of a key: an empty node that is never evicted. */
export function createRoot(key: string): RadixNode {
  return new RadixNode(null, key, 0, new Int32Array(0), [], new Float64Array(0));
}

/**
 * Finds the longest prefix of tokens [0, limit) below `from`, whose own tokens are taken as matched. Changes
 * nothing.
 */
export function descend(from: RadixNode, tokens: Int32Array, limit: number, sharing: Sharing): MatchPosition {
  assert(limit >= from.end && limit <= tokens.length, "the search starts inside of the tokens");
  let node = from;
  let depth = from.end;
  while (depth < limit) {
    const child = node.children.get(edgeOf(tokens, depth, sharing));
    if (child === undefined) break;
    node = child;
    depth += commonLength(tokens, depth, edgeLimit(depth, limit, sharing), child.tokens);
    if (depth < child.end) break;
  }
  return { node, depth };
}

/** Counts the tokens of [from, limit) that agree with `others` from its beginning. */
export function commonLength(tokens: Int32Array, from: number, limit: number, others: Int32Array): number {
  const most = Math.min(limit - from, others.length);
  let count = 0;
  while (count < most && tokens[from + count] === others[count]) count += 1;
  return count;
}

/**
 * Cuts a node in two at `depth`, strictly inside of it, and returns the new upper part. `node` stays the
 * lower part, so that references to it still mean the same tokens; its locks pass through the upper part
 * too.
 */
export function split(node: RadixNode, depth: number, pageTokens: number): RadixNode {
  assert(node.parent !== null && node.start < depth && depth < node.end, "a cut is inside of a node");
  const wholePages = Math.floor(depth / pageTokens) - Math.floor(node.start / pageTokens);
  const upper = new RadixNode(
    node.parent,
    node.edge,
    node.start,
    part(node.tokens, 0, depth - node.start),
    node.pages.slice(0, wholePages),
    part(node.hashes, 0, wholePages),
  );
  upper.locks = node.locks;
  upper.kind = node.kind;
  upper.reads = node.reads;
  upper.stored = Math.min(node.stored, wholePages);
  node.stored -= upper.stored;
  node.parent.children.set(upper.edge, upper);
  node.parent = upper;
  node.start = depth;
  node.tokens = part(node.tokens, upper.tokens.length, node.tokens.length);
  node.pages = node.pages.slice(wholePages);
  node.hashes = part(node.hashes, wholePages, node.hashes.length);
  node.edge = node.tokens[0]!;
  upper.children.set(node.edge, node);
  splitCheckpoints(upper, node);
  return upper;
}

/** The deepest checkpoint within the first `depth` tokens of the path to `node`; null: there is none. */
export function deepest(node: RadixNode, depth: number): Checkpoint | null {
  for (let at: RadixNode | null = node; at !== null; at = at.parent) {
    if (at.kept === 0) continue;
    const found = at.checkpoints.findLast((checkpoint) => checkpoint.depth <= depth);
    if (found !== undefined) return found;
  }
  return null;
}

/** Divides the checkpoints of a node that was cut: those up to the cut move to `upper`. */
function splitCheckpoints(upper: RadixNode, lower: RadixNode): void {
  upper.kept = lower.kept;
  if (lower.checkpoints.length === 0) return;
  upper.checkpoints = lower.checkpoints.filter(({ depth }) => depth <= upper.end);
  lower.checkpoints = lower.checkpoints.filter(({ depth }) => depth > upper.end);
  lower.kept -= upper.checkpoints.length;
  for (const checkpoint of upper.checkpoints) checkpoint.node = upper;
}

/** Adds a leaf below `parent`, which has no child by this edge. */
export function attach(
  parent: RadixNode,
  edge: Edge,
  tokens: Int32Array,
  pages: PageId[],
  hashes: Float64Array,
): RadixNode {
  assert(tokens.length > 0 && !parent.children.has(edge), "a new leaf differs from its siblings at once");
  const leaf = new RadixNode(parent, edge, parent.end, tokens, pages, hashes);
  parent.children.set(edge, leaf);
  return leaf;
}

/** Takes a leaf out of the tree. */
export function detach(leaf: RadixNode): void {
  assert(leaf.parent !== null && leaf.isLeaf, "only leaves can be taken out");
  leaf.parent.children.delete(leaf.edge);
}

/** The page table of the path that ends with `node`: the page lists of its nodes, put together. */
export function pathPages(node: RadixNode): PageId[] {
  const path: RadixNode[] = [];
  for (let at: RadixNode | null = node; at !== null; at = at.parent) path.push(at);
  return path.reverse().flatMap((at) => at.pages);
}

/** The tokens of the path that ends with `node`. */
export function tokensOf(node: RadixNode): Int32Array {
  const tokens = new Int32Array(node.end);
  for (let at = node; at.parent !== null; at = at.parent) tokens.set(at.tokens, at.start);
  return tokens;
}

/**
 * Least recently used order of the nodes that no lock pins: a doubly linked list, its position the logical
 * clock.
 *
 * A lock that ends puts the nodes of its path at the newest end, deepest first. Each use of a child is a use
 * of its parent, which follows it in this order. So a parent is always newer than its children. The oldest
 * node is therefore always a leaf: eviction needs no search.
 */
export class LruList {
  #oldest: RadixNode | null = null;
  #newest: RadixNode | null = null;

  get oldest(): RadixNode | null {
    return this.#oldest;
  }

  append(node: RadixNode): void {
    assert(node.order === null, "a node is in one order, once");
    node.order = this;
    node.older = this.#newest;
    if (this.#newest === null) this.#oldest = node;
    else this.#newest.newer = node;
    this.#newest = node;
  }

  /** Puts a node at the oldest end. */
  prepend(node: RadixNode): void {
    assert(node.order === null, "a node is in one order, once");
    node.order = this;
    node.newer = this.#oldest;
    if (this.#oldest === null) this.#newest = node;
    else this.#oldest.older = node;
    this.#oldest = node;
  }

  remove(node: RadixNode): void {
    assert(node.order === this, "the node is in the order");
    node.order = null;
    if (node.older === null) this.#oldest = node.newer;
    else node.older.newer = node.newer;
    if (node.newer === null) this.#newest = node.older;
    else node.newer.older = node.older;
    node.older = null;
    node.newer = null;
  }

  *[Symbol.iterator](): Generator<RadixNode> {
    for (let node = this.#oldest; node !== null; node = node.newer) yield node;
  }
}

/**
 * A waiting prompt, and how much of it is cached. From `track` to `untrack` the cache keeps its position in
 * the tree up to date: no lookup is needed, however often the cache changes. So a node knows how many prompts
 * are going to read it.
 */
export class PrefixWaiter {
  readonly sharing: Sharing;
  /** The prompt: tokens [0, limit) may match, and do not change. */
  readonly tokens: Int32Array;
  readonly limit: number;
  /** Number of cached tokens, exact to the token. They end in `node`; null: the waiter is not tracked. */
  depth = 0;
  node: RadixNode | null = null;
  /** The deepest checkpoint within these tokens. Null: there is none. Undefined: the model has no states. */
  checkpoint: Checkpoint | null | undefined;
  /** Called when `depth` or `usable` has changed. */
  readonly onChange: () => void;

  constructor(sharing: Sharing, tokens: Int32Array, limit: number, onChange: () => void) {
    this.sharing = sharing;
    this.tokens = tokens;
    this.limit = limit;
    this.onChange = onChange;
  }

  /** Number of cached tokens that need not be computed: with states, those before the deepest checkpoint. */
  get usable(): number {
    return this.checkpoint === undefined ? this.depth : (this.checkpoint?.depth ?? 0);
  }
}

/**
 * Moves a waiter's match: it ends in `node` now, `depth` tokens from the root. The caller updates the counts.
 */
export function moveWaiter(waiter: PrefixWaiter, node: RadixNode | null, depth: number): void {
  if (waiter.node !== node) {
    const before = waiter.node;
    before?.ending?.delete(waiter);
    if (before?.ending?.size === 0) before.ending = null;
    if (node !== null) {
      node.ending ??= new Set();
      node.ending.add(waiter);
    }
    waiter.node = node;
  }
  if (waiter.depth === depth) return;
  waiter.depth = depth;
  waiter.onChange();
}

/** Splits the waiters of a node that was cut: those whose match ends above the cut move to `upper`. */
export function splitWaiters(upper: RadixNode, lower: RadixNode): void {
  upper.waiters = lower.waiters;
  for (const waiter of lower.ending ?? []) {
    if (waiter.depth > upper.end) continue;
    moveWaiter(waiter, upper, waiter.depth);
    lower.waiters -= 1;
  }
}

/** Advances the waiters at the parent of a new leaf whose prompts continue with it. */
export function advanceWaiters(leaf: RadixNode): void {
  const { start, tokens, edge } = leaf;
  for (const waiter of leaf.parent?.ending ?? []) {
    const { depth, limit, sharing } = waiter;
    if (depth < start || limit === start || edgeOf(waiter.tokens, start, sharing) !== edge) continue;
    leaf.waiters += 1;
    const end = edgeLimit(start, limit, sharing);
    moveWaiter(waiter, leaf, start + commonLength(waiter.tokens, start, end, tokens));
  }
}

/**
 * Moves the waiters of a leaf back, which has lost its tokens from `end` on, or all of them if it begins
 * there.
 */
export function recedeWaiters(leaf: RadixNode, end: number): void {
  for (const waiter of leaf.ending ?? []) {
    if (end > leaf.start) moveWaiter(waiter, leaf, Math.min(waiter.depth, end));
    else {
      leaf.waiters -= 1;
      moveWaiter(waiter, leaf.parent, leaf.start);
    }
  }
}

import { assert } from "../../base/assert.ts";
import { part } from "../../base/part.ts";
import type { TokenId } from "../../base/token.ts";
import type { PageId, Sharing } from "../core.ts";

/** By what a span is found below its parent: its first token; behind what is public, that and whose it is. */
export type Edge = TokenId | string;

/** By what tokens from `at` on are found there. */
export function edgeOf(tokens: Int32Array, at: number, { key, publicTokens }: Sharing): Edge {
  return at === publicTokens && at > 0 ? `${tokens[at]}:${key}` : tokens[at]!;
}

/** How far tokens from `at` on may be looked for along the same edge: what is public ends there. */
export function edgeLimit(at: number, limit: number, { publicTokens }: Sharing): number {
  return at < publicTokens ? Math.min(limit, publicTokens) : limit;
}

/**
 * A node of the radix tree: tokens [start, end) of every sequence that passes through it, and pages.
 *
 * Spans begin and end anywhere, also inside a page, so that matching is exact to the token (RadixAttention,
 * arXiv:2312.07104 §3, has pages of one token; its descendants match whole pages only). A page that a fork
 * divides is listed by each branch, never by the stem, and the branch's page holds the stem's tokens in it as
 * well:
 *
 *   token axis   0        16       32       48         pages of 16 tokens
 *   stem         ├───────────────────┤ 35              lists p0 p1         (whole pages only: it has children)
 *   branch X                         ├─────────┤ 53    lists p2 p3         p2 = tokens 32..47 as X has them
 *   branch Y                         ├──────┤ 46       lists p4            p4 = tokens 32..34 again, then Y's own
 *
 * So every page is listed once in the tree, the page lists along a path put together are that path's page
 * table, and a span lists pages floor(start / T) … (leaf ? ceil(end / T) : floor(end / T)) - 1 of its path,
 * T tokens a page.
 * A listed page is never written.
 */
export class Span {
  parent: Span | null;
  start: number;
  tokens: Int32Array;
  pages: PageId[];
  /** Of the whole pages that end in the span: floor(start / T) … floor(end / T) - 1 (page-hash.ts). Empty in a cache
   *  without an observer. */
  hashes: Float64Array;
  /** By which its parent has it; of a root, the key of its tree. */
  edge: Edge;
  readonly children = new Map<Edge, Span>();
  /** Leases that end here or below. While there is one, the span is neither evicted nor shortened. */
  leases = 0;
  /** Readers whose match ends here or below; and those whose match ends here, null for none. */
  readers = 0;
  ending: Set<Reader> | null = null;
  /** The order in which it may be evicted; null: it may not. Its neighbours there; null at its ends, and outside. */
  order: EvictionOrder | null = null;
  older: Span | null = null;
  newer: Span | null = null;

  constructor(
    parent: Span | null,
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

/** A place on the token axis of the tree: `depth` tokens from the root, in `span` (start < depth ≤ end, or
 *  the root). */
export interface Place {
  readonly span: Span;
  readonly depth: number;
}

/** The root of the tree of a key: an empty span that is never evicted. */
export function createRoot(key: string): Span {
  return new Span(null, key, 0, new Int32Array(0), [], new Float64Array(0));
}

/** The longest prefix of tokens [0, limit) found below `from`, whose own tokens are taken as matched. Changes
 *  nothing. */
export function descend(from: Span, tokens: Int32Array, limit: number, sharing: Sharing): Place {
  assert(limit >= from.end && limit <= tokens.length, "the search starts inside of the tokens");
  let span = from;
  let depth = from.end;
  while (depth < limit) {
    const child = span.children.get(edgeOf(tokens, depth, sharing));
    if (child === undefined) break;
    span = child;
    depth += commonLength(tokens, depth, edgeLimit(depth, limit, sharing), child.tokens);
    if (depth < child.end) break;
  }
  return { span, depth };
}

/** How many of tokens [from, limit) agree with `others` from its beginning. */
export function commonLength(tokens: Int32Array, from: number, limit: number, others: Int32Array): number {
  const most = Math.min(limit - from, others.length);
  let count = 0;
  while (count < most && tokens[from + count] === others[count]) count += 1;
  return count;
}

/**
 * Cuts a span in two at `depth`, strictly inside of it, and returns the new upper part. `span` stays the
 * lower part, so that references to it still mean the same tokens; its leases pass through the upper part
 * too.
 */
export function split(span: Span, depth: number, pageTokens: number): Span {
  assert(span.parent !== null && span.start < depth && depth < span.end, "a cut is inside of a span");
  const wholePages = Math.floor(depth / pageTokens) - Math.floor(span.start / pageTokens);
  const upper = new Span(
    span.parent,
    span.edge,
    span.start,
    part(span.tokens, 0, depth - span.start),
    span.pages.slice(0, wholePages),
    part(span.hashes, 0, wholePages),
  );
  upper.leases = span.leases;
  span.parent.children.set(upper.edge, upper);
  span.parent = upper;
  span.start = depth;
  span.tokens = part(span.tokens, upper.tokens.length, span.tokens.length);
  span.pages = span.pages.slice(wholePages);
  span.hashes = part(span.hashes, wholePages, span.hashes.length);
  span.edge = span.tokens[0]!;
  upper.children.set(span.edge, span);
  return upper;
}

/** Adds a leaf below `parent`, which has no child by this edge. */
export function attach(
  parent: Span,
  edge: Edge,
  tokens: Int32Array,
  pages: PageId[],
  hashes: Float64Array,
): Span {
  assert(tokens.length > 0 && !parent.children.has(edge), "a new leaf differs from its siblings at once");
  const leaf = new Span(parent, edge, parent.end, tokens, pages, hashes);
  parent.children.set(edge, leaf);
  return leaf;
}

/** Takes a leaf out of the tree. */
export function detach(leaf: Span): void {
  assert(leaf.parent !== null && leaf.isLeaf, "only leaves can be taken out");
  leaf.parent.children.delete(leaf.edge);
}

/** The page table of the path that ends with `span`: the page lists of its spans, put together. */
export function pathPages(span: Span): PageId[] {
  const path: Span[] = [];
  for (let at: Span | null = span; at !== null; at = at.parent) path.push(at);
  return path.reverse().flatMap((at) => at.pages);
}

/**
 * Least recently used order of the spans that no lease pins: a doubly linked list, its position the logical
 * clock.
 *
 * A lease that ends puts the spans of its path at the newest end, deepest first. A parent is therefore always
 * newer than its children (each use of a child is a use of the parent, and later in this order), and so the oldest
 * span is always a leaf: eviction needs no search.
 */
export class EvictionOrder {
  #oldest: Span | null = null;
  #newest: Span | null = null;

  get oldest(): Span | null {
    return this.#oldest;
  }

  append(span: Span): void {
    assert(span.order === null, "a span is in one order, once");
    span.order = this;
    span.older = this.#newest;
    if (this.#newest === null) this.#oldest = span;
    else this.#newest.newer = span;
    this.#newest = span;
  }

  /** Puts a span at the oldest end. */
  prepend(span: Span): void {
    assert(span.order === null, "a span is in one order, once");
    span.order = this;
    span.newer = this.#oldest;
    if (this.#oldest === null) this.#newest = span;
    else this.#oldest.older = span;
    this.#oldest = span;
  }

  remove(span: Span): void {
    assert(span.order === this, "the span is in the order");
    span.order = null;
    if (span.older === null) this.#oldest = span.newer;
    else span.older.newer = span.newer;
    if (span.newer === null) this.#newest = span.older;
    else span.newer.older = span.older;
    span.older = null;
    span.newer = null;
  }

  *[Symbol.iterator](): Generator<Span> {
    for (let span = this.#oldest; span !== null; span = span.newer) yield span;
  }
}

/**
 * A prompt that waits to be computed, and how much of it is cached. From `follow` to `unfollow` the cache keeps its place
 * in the tree: no lookup is needed, however often what is cached changes, and a span knows how many are going to read it.
 */
export class Reader {
  readonly sharing: Sharing;
  /** Tokens [0, limit) are looked for; they do not change. */
  readonly tokens: Int32Array;
  readonly limit: number;
  /** Tokens that are cached, exact to the token. They end in `span`; null: it is not followed. */
  depth = 0;
  span: Span | null = null;
  /** Told when `depth` has changed. */
  readonly onChange: () => void;

  constructor(sharing: Sharing, tokens: Int32Array, limit: number, onChange: () => void) {
    this.sharing = sharing;
    this.tokens = tokens;
    this.limit = limit;
    this.onChange = onChange;
  }
}

/** The reader's match ends in `span` now, `depth` tokens from the root. Counts are the caller's. */
export function moveReader(reader: Reader, span: Span | null, depth: number): void {
  if (reader.span !== span) {
    const before = reader.span;
    before?.ending?.delete(reader);
    if (before?.ending?.size === 0) before.ending = null;
    if (span !== null) {
      span.ending ??= new Set();
      span.ending.add(reader);
    }
    reader.span = span;
  }
  if (reader.depth === depth) return;
  reader.depth = depth;
  reader.onChange();
}

/** `lower` was cut: those whose match ends above the cut stay there. */
export function splitReaders(upper: Span, lower: Span): void {
  upper.readers = lower.readers;
  for (const reader of lower.ending ?? []) {
    if (reader.depth > upper.end) continue;
    moveReader(reader, upper, reader.depth);
    lower.readers -= 1;
  }
}

/** `leaf` is new: readers that continue from its parent as it does find more. */
export function advanceReaders(leaf: Span): void {
  const { start, tokens, edge } = leaf;
  for (const reader of leaf.parent?.ending ?? []) {
    const { depth, limit, sharing } = reader;
    if (depth < start || limit === start || edgeOf(reader.tokens, start, sharing) !== edge) continue;
    leaf.readers += 1;
    const end = edgeLimit(start, limit, sharing);
    moveReader(reader, leaf, start + commonLength(reader.tokens, start, end, tokens));
  }
}

/** Of `leaf` tokens from `end` on are gone, all of them if it begins there: its readers find less. */
export function recedeReaders(leaf: Span, end: number): void {
  for (const reader of leaf.ending ?? []) {
    if (end > leaf.start) moveReader(reader, leaf, Math.min(reader.depth, end));
    else {
      leaf.readers -= 1;
      moveReader(reader, leaf.parent, leaf.start);
    }
  }
}

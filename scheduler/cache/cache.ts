import { assert } from "../../base/assert.ts";
import { part } from "../../base/part.ts";
import type { PageId, Sharing } from "../core.ts";
import { type Eviction, WantedLast } from "./eviction.ts";
import { hashPages, keyHash, privateHash } from "./page-hash.ts";
import type { PagePool } from "./page-pool.ts";
import {
  advanceReaders,
  attach,
  createRoot,
  descend,
  detach,
  edgeOf,
  moveReader,
  type Place,
  type Reader,
  recedeReaders,
  type Span,
  split,
  splitReaders,
} from "./radix-tree.ts";

/** A pin on the path from the root to `span`. Only the cache makes, moves and ends leases. */
export interface Lease {
  readonly sharing: Sharing;
  /** The deepest pinned span; the lease covers tokens [0, span.end). */
  readonly span: Span;
}

/** What a lookup would find. */
export interface Match {
  /** Tokens found, exact to the token. */
  readonly tokens: number;
  /** Pages that can be evicted now, and no longer once the match and the source of its copy are leased. */
  readonly pagesPinned: number;
}

/** Told what the cache takes in and lets go, from within the call that does it. */
export interface CacheObserver {
  /** A new leaf: the whole pages that end in it are cached now. */
  inserted(span: Span): void;
  /** Of the path that ends with `span`, whole pages `from` … are about to go; it has none after those. */
  evicting(span: Span, from: number): void;
}

/**
 * The prefix cache: one radix tree per key (Sharing) over the pages of computed tokens (RadixAttention,
 * arXiv:2312.07104 §3), with leases, and eviction of the least recently used. What begins with a public text is in the tree of its
 * public key, and branches off by its own key where the public text ends.
 *
 * What holds a page, along the token axis of a running sequence:
 *
 *   0 ─────────── lease end ──────────── computed ─────────── reserved
 *   │ spans', pinned by │ the sequence's own,  │ the sequence's own, │
 *   │ the lease         │ complete or partial  │ not yet written     │
 *   └───────────────────┴─ insert() moves this border to the right ──┘
 *
 * Leases end on page borders, so that a sequence writes into no page of the tree. A match that ends inside a
 * page is used by copying that page; `leaseSource` pins it until the step that copies is done (up to its
 * border, or the leaf's end). A span that ends inside a page and is pinned is therefore a leaf, or has a
 * branch that is pinned.
 */
export class Cache {
  readonly #pool: PagePool;
  readonly #observer: CacheObserver | null;
  readonly #roots = new Map<string, Span>();
  readonly #eviction: Eviction;
  /** Pages listed by spans, and by spans with leases. */
  #pagesHeld = 0;
  #pagesLeased = 0;
  #pagesEvictedTotal = 0;

  constructor(pool: PagePool, observer: CacheObserver | null = null, eviction: Eviction = new WantedLast()) {
    this.#pool = pool;
    this.#observer = observer;
    this.#eviction = eviction;
  }

  /** Whether an observer is told what comes and goes, and pages are hashed for it. */
  get isObserved(): boolean {
    return this.#observer !== null;
  }

  get pagesHeld(): number {
    return this.#pagesHeld;
  }

  /** Pages that `evict` could free now. */
  get pagesEvictable(): number {
    return this.#pagesHeld - this.#pagesLeased;
  }

  /** Of those, pages that readers wait for. */
  get pagesWanted(): number {
    return this.#eviction.pagesWanted;
  }

  /** Pages that `evict` has freed so far. */
  get pagesEvictedTotal(): number {
    return this.#pagesEvictedTotal;
  }

  /** Looks up the longest cached prefix of tokens [0, limit). Changes nothing, not even the eviction order. */
  match(tokens: Int32Array, limit: number, sharing: Sharing): Match {
    const place = this.#find(tokens, limit, sharing);
    if (place === null) return { tokens: 0, pagesPinned: 0 };
    return { tokens: place.depth, pagesPinned: this.#pinnable(place) };
  }

  /** Looks up the reader's prompt, and keeps its match up to date from now on. What it is going to read counts as used
   *  now, and may be evicted last. */
  follow(reader: Reader): void {
    assert(reader.span === null, "a reader is followed once");
    const { span, depth } = descend(
      this.#rootOf(reader.sharing),
      reader.tokens,
      reader.limit,
      reader.sharing,
    );
    moveReader(reader, span, depth);
    for (let at: Span | null = span; at !== null; at = at.parent) {
      at.readers += 1;
      this.#eviction.followed(at);
    }
  }

  /** The reader waits no longer. `givesUp`: what has no other reader, and nothing goes on from, is evicted before all
   *  else. */
  unfollow(reader: Reader, givesUp = false): void {
    assert(reader.span !== null, "the reader is followed");
    const { span: deepest } = reader;
    let root = deepest;
    for (let span: Span | null = root; span !== null; span = span.parent) {
      span.readers -= 1;
      this.#eviction.unfollowed(span);
      root = span;
    }
    moveReader(reader, null, reader.depth);
    if (givesUp) this.#giveUp(deepest);
    this.#forget(root);
  }

  /** Puts what only this path reads at the oldest end, stems after their branches: up to where another path goes on. */
  #giveUp(deepest: Span): void {
    const path: Span[] = [];
    for (let span = deepest; span.parent !== null; span = span.parent) {
      const isLast = span.isLeaf || (span.children.size === 1 && path.length > 0);
      if (!isLast || span.readers > 0 || span.leases > 0) break;
      path.push(span);
    }
    for (const span of path.reverse()) this.#eviction.giveUp(span);
  }

  /** As `match` tells: pages that can be evicted now, and no longer once the reader's match is leased. */
  pagesPinnedBy({ span, depth }: Reader): number {
    assert(span !== null, "the reader is followed");
    return this.#pinnable({ span, depth });
  }

  /** Pins the longest cached prefix of tokens [0, limit) that is whole pages. May split a span. */
  lease(tokens: Int32Array, limit: number, sharing: Sharing): Lease {
    const { pageTokens } = this.#pool;
    let place = descend(this.#rootOf(sharing), tokens, limit, sharing);
    const whole = place.depth - (place.depth % pageTokens);
    if (whole < place.depth) place = { span: spanAt(place.span, whole), depth: whole };
    const span = this.#cutAt(place);
    this.#pin(span, null);
    return { sharing, span };
  }

  /** Pins the page in which the cached prefix of tokens [0, depth) ends, `depth` inside of a page and found
   *  by `match`. May split a span. */
  leaseSource(
    tokens: Int32Array,
    depth: number,
    sharing: Sharing,
  ): { readonly lease: Lease; readonly page: PageId } {
    const { pageTokens } = this.#pool;
    const place = this.#find(tokens, depth, sharing);
    assert(
      place !== null && place.depth === depth && depth % pageTokens !== 0,
      "the source of a copy is cached",
    );
    const listing = listingSpan(place, pageTokens);
    const border = Math.ceil(depth / pageTokens) * pageTokens;
    const span = this.#cutAt({ span: listing, depth: Math.min(border, listing.end) });
    this.#pin(span, null);
    const page = span.pages.at(-1);
    assert(page !== undefined, "the span lists the page in which the match ends");
    return { lease: { sharing, span }, page };
  }

  /** Ends a lease. Its spans are the most recently used ones now, unless others still pin them. */
  release(lease: Lease): void {
    let root = lease.span;
    for (let span: Span | null = lease.span; span !== null; span = span.parent) {
      assert(span.leases > 0, "a lease is released once");
      span.leases -= 1;
      if (span.leases === 0 && span.parent !== null) {
        this.#pagesLeased -= span.pages.length;
        this.#list(span);
      }
      root = span;
    }
    this.#forget(root);
  }

  /** Ends a lease on tokens that may be computed wrong: frees the spans of its path that no other lease pins or
   *  continues. */
  discard(lease: Lease): void {
    this.release(lease);
    for (let span = lease.span; span.parent !== null && span.isLeaf && span.leases === 0; ) {
      const { parent } = span;
      // Shortening a branch may have taken out its stem as well.
      if (parent.children.get(span.edge) === span) this.#shorten(span, span.pages.length);
      span = parent;
    }
  }

  /**
   * Hands the computed tokens [lease end, end) and their pages over to the tree, and returns a lease on all
   * of it in place of the given one. `pages` is the sequence's page table. Where the tree has the tokens
   * already, it keeps its pages, the sequence's duplicates are freed and the table is rewritten. `end` is on
   * a page border. May split a span.
   */
  insert(lease: Lease, tokens: Int32Array, end: number, pages: Int32Array): Lease {
    assert(end % this.#pool.pageTokens === 0, "a running sequence hands over whole pages");
    return this.#extend(lease, tokens, end, pages);
  }

  /** As `insert`, for a sequence that ends: `end` may be inside of a page, and the lease is released. */
  insertLast(lease: Lease, tokens: Int32Array, end: number, pages: Int32Array): void {
    this.release(this.#extend(lease, tokens, end, pages));
  }

  /** Frees at least `pages` pages if so many can be evicted: leaves without readers first, of those the least
   *  recently used, their tail pages first. Returns how many it freed. */
  evict(pages: number): number {
    const freeBefore = this.#pool.pagesFree;
    while (this.#pool.pagesFree - freeBefore < pages) {
      const leaf = this.#eviction.first;
      if (leaf === null) break;
      this.#shorten(leaf, pages - (this.#pool.pagesFree - freeBefore));
    }
    const freed = this.#pool.pagesFree - freeBefore;
    this.#pagesEvictedTotal += freed;
    return freed;
  }

  /** All spans, roots included, parents first. For checks and pictures. */
  *spans(): Generator<{ readonly key: string; readonly span: Span }> {
    for (const [key, root] of this.#roots) {
      const stack = [root];
      for (let span = stack.pop(); span !== undefined; span = stack.pop()) {
        yield { key, span };
        for (const child of span.children.values()) stack.push(child);
      }
    }
  }

  /** Spans in the order in which they would be evicted, stems after their branches. */
  get evictionOrder(): Pick<Eviction, "isWanted" | typeof Symbol.iterator> {
    return this.#eviction;
  }

  #rootOf(sharing: Sharing): Span {
    const key = rootKey(sharing);
    let root = this.#roots.get(key);
    if (root === undefined) {
      root = createRoot(key);
      this.#roots.set(key, root);
    }
    return root;
  }

  #forget(root: Span): void {
    if (root.leases === 0 && root.readers === 0 && root.isLeaf) this.#roots.delete(`${root.edge}`);
  }

  /** Lets a span be evicted as the most recently used one, if it has no leases. */
  #list(span: Span): void {
    if (span.leases === 0 && span.parent !== null) this.#eviction.add(span);
  }

  /** Pages without leases of the path that ends with the page at `place`. */
  #pinnable(place: Place): number {
    const { pageTokens } = this.#pool;
    let pages = 0;
    for (
      let span: Span | null = listingSpan(place, pageTokens);
      span !== null && span.leases === 0;
      span = span.parent
    ) {
      const needed = Math.ceil(place.depth / pageTokens) - Math.floor(span.start / pageTokens);
      pages += Math.min(needed, span.pages.length);
    }
    return pages;
  }

  #find(tokens: Int32Array, limit: number, sharing: Sharing): Place | null {
    const root = this.#roots.get(rootKey(sharing));
    return root === undefined ? null : descend(root, tokens, limit, sharing);
  }

  /** The span that ends at the place; splits the one there if it goes on. The caller pins it at once. */
  #cutAt({ span, depth }: Place): Span {
    if (depth === span.end) return span;
    const upper = split(span, depth, this.#pool.pageTokens);
    splitReaders(upper, span);
    this.#eviction.shrank(span, upper.pages.length);
    this.#eviction.unfollowed(span);
    this.#list(upper);
    return upper;
  }

  /** Pins the spans from `deepest` upward, short of `above`. */
  #pin(deepest: Span, above: Span | null): void {
    for (let span: Span | null = deepest; span !== above && span !== null; span = span.parent) {
      if (span.leases === 0 && span.parent !== null) {
        this.#pagesLeased += span.pages.length;
        this.#eviction.remove(span);
      }
      span.leases += 1;
    }
  }

  #extend(lease: Lease, tokens: Int32Array, end: number, pages: Int32Array): Lease {
    const { sharing, span: from } = lease;
    assert(end >= from.end, "leased tokens are computed");
    if (end === from.end) return lease;
    const { publicTokens } = sharing;
    // What is public ends with a span.
    if (from.end < publicTokens && publicTokens < end)
      return this.#extend(this.#extend(lease, tokens, publicTokens, pages), tokens, end, pages);
    const span = this.#merge(lease, tokens, end, pages);
    this.#pin(span, from);
    return { sharing, span };
  }

  /** Brings tokens [from.end, end) into the tree; returns the span that ends there. The caller pins it at
   *  once. */
  #merge({ sharing, span: from }: Lease, tokens: Int32Array, end: number, pages: Int32Array): Span {
    const { pageTokens } = this.#pool;
    const place = descend(from, tokens, end, sharing);
    const isKnown = place.depth === end;
    const firstNew = isKnown ? Math.ceil(end / pageTokens) : Math.floor(place.depth / pageTokens);
    this.#replaceDuplicates(from, place, pages, firstNew);
    const stem = this.#cutAt(place);
    if (isKnown) return stem;

    if (stem.isLeaf && stem.parent !== null && stem.end % pageTokens !== 0) this.#dropPages(stem, 1);
    const leafPages: PageId[] = [];
    for (let index = firstNew; index * pageTokens < end; index++) leafPages.push(pages[index]! as PageId);
    // A copy: a view would keep the whole sequence in memory for as long as the span.
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
    const edge = edgeOf(tokens, place.depth, sharing);
    const leaf = attach(stem, edge, tokens.slice(place.depth, end), leafPages, hashes);
    this.#pagesHeld += leafPages.length;
    advanceReaders(leaf);
    this.#list(leaf);
    this.#observer?.inserted(leaf);
    return leaf;
  }

  /** Frees the table's pages from `from.end` to page `firstNew` and puts the tree's own in their place. */
  #replaceDuplicates(from: Span, place: Place, table: Int32Array, firstNew: number): void {
    const { pageTokens } = this.#pool;
    const first = from.end / pageTokens;
    for (let index = first; index < firstNew; index++) this.#pool.release(table[index]! as PageId);
    const wholeEnd = Math.min(firstNew, Math.floor(place.depth / pageTokens));
    for (let span = place.span; span !== from; span = span.parent!) {
      const spanFirst = Math.floor(span.start / pageTokens);
      for (let i = 0; i < span.pages.length && spanFirst + i < wholeEnd; i++) {
        table[spanFirst + i] = span.pages[i]!;
      }
    }
  }

  /** Takes up to `pages` pages off the end of an unpinned leaf; the leaf goes with its last page, and a stem
   *  that loses its last branch goes back to its last whole page. */
  #shorten(leaf: Span, pages: number): void {
    assert(leaf.leases === 0 && leaf.isLeaf, "only leaves without leases are evicted");
    this.#dropPages(leaf, Math.min(pages, leaf.pages.length));
    this.#cutToPages(leaf);
  }

  /** Cuts the tokens of a leaf back to what its pages hold, whole pages only; takes out leaves left without
   *  tokens. */
  #cutToPages(leaf: Span): void {
    const { pageTokens } = this.#pool;
    const first = Math.floor(leaf.start / pageTokens);
    const end = (first + leaf.pages.length) * pageTokens;
    const wholeEnd = Math.floor(Math.min(leaf.end, Math.max(end, leaf.start)) / pageTokens);
    this.#observer?.evicting(leaf, wholeEnd);
    recedeReaders(leaf, end);
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
    else if (parent.leases === 0) this.#cutToPages(parent);
  }

  /** Releases the last `count` pages of a span. */
  #dropPages(span: Span, count: number): void {
    for (const page of span.pages.splice(span.pages.length - count, count)) this.#pool.release(page);
    this.#pagesHeld -= count;
    if (span.leases > 0) this.#pagesLeased -= count;
    this.#eviction.shrank(span, count);
  }
}

/** Pages are hashed for an observer only. */
const unhashed = new Float64Array(0);

/** The ancestor-or-self of `span` that contains or ends at `depth`. */
function spanAt(span: Span, depth: number): Span {
  let at = span;
  while (at.parent !== null && at.start >= depth) at = at.parent;
  return at;
}

/** The key of the tree that it is in. */
function rootKey({ key, publicKey, publicTokens }: Sharing): string {
  return publicTokens > 0 ? publicKey : key;
}

/** The hash of the whole pages of tokens [0, span.end), to go on from with the page that begins at token `start`. */
function hashBefore(span: Span, start: number, sharing: Sharing): number {
  const { key, publicTokens } = sharing;
  for (let at: Span | null = span; at !== null; at = at.parent) {
    const last = at.hashes.at(-1);
    if (last !== undefined) return start === publicTokens ? privateHash(last, key) : last;
  }
  return keyHash(rootKey(sharing));
}

/** The span that lists the page in which `place` ends: the place's own, or, where a fork divides the page,
 *  any branch. */
function listingSpan(place: Place, pageTokens: number): Span {
  let span = place.span;
  while (!span.isLeaf && Math.ceil(place.depth / pageTokens) > Math.floor(span.end / pageTokens)) {
    span = span.children.values().next().value!;
  }
  return span;
}

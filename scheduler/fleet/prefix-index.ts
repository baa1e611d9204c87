import { assert } from "../../base/assert.ts";
import type { KvEvent, KvEvents } from "../cache/kv-event-log.ts";
import { EvictionFront } from "./eviction-front.ts";
import { IndexNode, NO_NODE } from "./index-node.ts";
import { IndexOrder } from "./index-order.ts";

/** The next expected KV events of an engine. */
interface Stream {
  epoch: number;
  next: number;
}

/** The part of a path that the index has. */
export interface KnownPrefix {
  /** The deepest node that has pages of the path, maybe not all of its own. */
  readonly node: IndexNode;
  readonly pages: number;
}

/**
 * The prefix trees of all engines in one: a radix tree over page hashes (Preble's global tree,
 * arXiv:2407.00023 §3.2), in which every node knows how much of it each engine has.
 *
 * Pages count as cached only by the engines' KV events, in order and without a gap. Besides, the index knows
 * the prefixes of sequences in flight to an engine, which will be cached there.
 */
export class PrefixIndex {
  readonly #windowMs: number;
  readonly #root: IndexNode;
  /** Nodes by id; removed nodes stay until their id is reused. */
  readonly #nodes: IndexNode[] = [];
  readonly #freeIds: number[] = [];
  readonly #order: IndexOrder;
  readonly #streams: Stream[];
  readonly #pagesCached: Int32Array;
  #pages = 0;
  readonly #fronts: readonly EvictionFront[];
  /** Number of the last look-up (`match`); those of nodes are 0 before any. */
  #look = 1;
  /** Pages that it found, by engine. */
  #found: Int32Array | null = null;
  readonly #isFound = (node: IndexNode): boolean => node.look === this.#look;
  /** The end of the last walk: page `#depth` of the path, inside or at the end of `#at`. */
  #at: IndexNode;
  #depth = 0;

  /** Hits are counted over about `windowMs`. */
  constructor(engines: number, windowMs: number) {
    this.#windowMs = windowMs;
    this.#root = new IndexNode(NO_NODE, null, 0, new Float64Array(0));
    this.#at = this.#root;
    this.#order = new IndexOrder(this.#nodes, engines);
    this.#streams = Array.from({ length: engines }, () => ({ epoch: 0, next: 0 }));
    this.#pagesCached = new Int32Array(engines);
    this.#fronts = this.#streams.map((_, engine) => new EvictionFront(engine, this.#order, windowMs));
  }

  /** Pages and nodes of the tree. */
  get size(): { readonly pages: number; readonly nodes: number } {
    return { pages: this.#pages, nodes: this.#nodes.length - this.#freeIds.length };
  }

  /** Number of pages that the engine has cached. */
  pagesCached(engine: number): number {
    return this.#pagesCached[engine]!;
  }

  /**
   * Writes for each engine how many leading pages of the path it has or will have (`found`), and has now (`cached`).
   * The caller keeps `found` unchanged until the next call. Null: the index has no page of the path.
   */
  match(path: Float64Array, found: Int32Array, cached: Int32Array): KnownPrefix | null {
    found.fill(0);
    cached.fill(0);
    this.#found = found;
    this.#look += 1;
    let deepest: IndexNode | null = null;
    let depth = 0;
    while (depth < path.length) {
      const node: IndexNode | undefined = (deepest ?? this.#root).children?.get(path[depth]!);
      if (node === undefined) break;
      const common = commonPages(node, path, depth);
      node.addFound(found, cached, common);
      deepest = node;
      node.look = this.#look;
      depth += common;
      if (depth < node.end) break;
    }
    return deepest === null ? null : { node: deepest, pages: depth };
  }

  /**
   * Counts a sequence with this path as in flight to the engine, which will have all of it. Returns the last
   * node of the path; null for an empty path. It ends with `settle` or `release`.
   */
  addInFlight(path: Float64Array, engine: number, nowMs: number): IndexNode | null {
    if (path.length === 0) return null;
    const front = this.#fronts[engine]!;
    this.#walk(path);
    this.#extend(path);
    for (let node = this.#at; node.parent !== null; node = node.parent) {
      node.countInFlight(engine, 1);
      node.hit(engine, nowMs, this.#windowMs);
      front.changed(node);
    }
    this.#touch(this.#at, engine);
    return this.#at;
  }

  /**
   * Makes an in-flight sequence a reader: the engine has reported its pages, and does not evict them before the
   * sequence ends.
   */
  settle(end: IndexNode, engine: number): void {
    const front = this.#fronts[engine]!;
    for (let node = end; node.parent !== null; node = node.parent) {
      node.countInFlight(engine, -1);
      node.addReader(engine, 1);
      front.changed(node);
    }
  }

  /** Removes a sequence that is in flight, or a reader (`isSettled`). */
  release(end: IndexNode, engine: number, isSettled: boolean): void {
    const front = this.#fronts[engine]!;
    for (let node = end; node.parent !== null; node = node.parent) {
      if (isSettled) node.addReader(engine, -1);
      else node.countInFlight(engine, -1);
      front.changed(node);
    }
    this.#prune(end);
  }

  /** Applies an engine's KV events. False: some were missed, and the engine must send its whole cache. */
  apply(engine: number, { epoch, number, isWhole, events }: KvEvents): boolean {
    const stream = this.#streams[engine]!;
    if (epoch !== stream.epoch) return true;
    const isMissing = !isWhole && number !== stream.next;
    stream.next = number + 1;
    // After a gap the events still hold, but are not complete.
    if (isWhole || isMissing) this.#forget(engine);
    for (const event of events) this.#note(engine, event);
    return !isMissing;
  }

  /** Removes all pages of a lost engine, whose next incarnation is `epoch`, empty at first. */
  restart(engine: number, epoch: number): void {
    this.#forget(engine);
    this.#streams[engine] = { epoch, next: 0 };
  }

  /**
   * The cost of evicting `pages` pages to sequences that come back for them: the time to compute the evicted
   * nodes again, weighed by their share of the engine's `hits` in the window (Preble's M). Pages that a
   * sequence reads or will read are not evicted, nor those that the last `match` found. `recomputeMs` takes
   * pages and the page that they begin at.
   */
  evictionMs(
    engine: number,
    pages: number,
    hits: number,
    nowMs: number,
    recomputeMs: (pages: number, first: number) => number,
  ): number {
    // An engine without the first page has none of the path's nodes.
    const stays = this.#found?.[engine] === 0 ? null : this.#isFound;
    return this.#fronts[engine]!.costMs(pages, nowMs, stays, recomputeMs) / Math.max(1, hits);
  }

  /** All nodes but the root, parents first. For checks. */
  *nodes(): Generator<IndexNode> {
    const stack = [...(this.#root.children?.values() ?? [])];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      yield node;
      if (node.children !== null) stack.push(...node.children.values());
    }
  }

  /** The nodes that an engine has some of, in the order in which it is expected to evict them. */
  *evictionOrder(engine: number): Generator<IndexNode> {
    for (let node = this.#order.oldest(engine); node !== null; node = this.#order.newer(node, engine)) {
      yield node;
    }
  }

  #note(engine: number, { kind, path, from }: KvEvent): void {
    this.#walk(path);
    if (kind === "insert") {
      if (this.#depth < path.length) this.#extend(path);
      for (let node = this.#at; node.parent !== null; node = node.parent) {
        const pages = Math.min(node.pages, path.length - node.first);
        if (pages > node.cached(engine)) this.#setCached(node, engine, pages);
      }
      this.#touch(this.#at, engine);
    } else if (this.#depth === path.length) {
      for (let node = this.#at; node.parent !== null && node.end > from; node = node.parent) {
        const pages = Math.max(0, from - node.first);
        if (pages < node.cached(engine)) this.#setCached(node, engine, pages);
      }
      this.#prune(this.#at);
    }
  }

  #forget(engine: number): void {
    for (let node = this.#order.oldest(engine); node !== null; node = this.#order.oldest(engine)) {
      this.#setCached(node, engine, 0);
      this.#prune(node);
    }
  }

  #setCached(node: IndexNode, engine: number, pages: number): void {
    const before = node.cached(engine);
    this.#pagesCached[engine]! += pages - before;
    if (before > 0 && pages === 0) this.#remove(node, engine);
    else this.#fronts[engine]!.changed(node);
    node.setCached(engine, pages);
    if (before === 0 && pages > 0) this.#order.append(node, engine);
  }

  /** Makes the path's nodes the engine's most recently used ones, stems after their branches. */
  #touch(end: IndexNode, engine: number): void {
    for (let node = end; node.parent !== null; node = node.parent) {
      if (node.cached(engine) === 0) continue;
      this.#remove(node, engine);
      this.#order.append(node, engine);
    }
  }

  /** Takes a node out of the engine's eviction order. */
  #remove(node: IndexNode, engine: number): void {
    this.#fronts[engine]!.removed(node);
    this.#order.remove(node, engine);
  }

  /** Walks down the tree along the path. */
  #walk(path: Float64Array): void {
    let node = this.#root;
    let depth = 0;
    while (depth < path.length && depth === node.end) {
      const child = node.children?.get(path[depth]!);
      if (child === undefined) break;
      node = child;
      depth += commonPages(child, path, depth);
    }
    this.#at = node;
    this.#depth = depth;
  }

  /** Makes the path end with a node, from where the last walk ended; `#at` is that node then. */
  #extend(path: Float64Array): void {
    if (this.#depth < this.#at.end) this.#at = this.#split(this.#at, this.#depth - this.#at.first);
    if (this.#depth === path.length) return;
    const stem = this.#at;
    this.#at = this.#create(stem, this.#depth, path.slice(this.#depth));
    this.#pages += this.#at.pages;
    adopt(stem, this.#at);
    this.#depth = path.length;
  }

  /** Cuts a node after its first `pages` pages; returns the new upper part. */
  #split(node: IndexNode, pages: number): IndexNode {
    const upper = this.#create(node.parent!, node.first, node.hashes.slice(0, pages));
    node.splitInto(upper, pages);
    for (let index = 0; index < upper.holders; index++) {
      const engine = upper.holder(index);
      const front = this.#fronts[engine]!;
      const below = node.cached(engine) - upper.cached(engine);
      if (upper.cached(engine) > 0) {
        this.#order.insertAfter(node, upper, engine);
        front.insertedAfter(node);
        if (below === 0) this.#remove(node, engine);
        else front.changed(node);
      }
      node.setCached(engine, below);
    }
    adopt(node.parent!, upper);
    adopt(upper, node);
    return upper;
  }

  #create(parent: IndexNode, first: number, hashes: Float64Array): IndexNode {
    const id = this.#freeIds.pop() ?? this.#nodes.length;
    const node = new IndexNode(id, parent, first, hashes);
    this.#nodes[id] = node;
    return node;
  }

  /**
   * Takes out the pages at the end of a branch that no engine has: those of `end`, if nothing continues from
   * it, and if it had no others, then those of its parents likewise.
   */
  #prune(end: IndexNode): void {
    for (let node = end; node.parent !== null && node.children === null; node = node.parent) {
      const needed = node.needed();
      this.#pages -= node.pages - needed;
      if (needed > 0) {
        node.cut(needed);
        return;
      }
      const siblings = node.parent.children;
      assert(siblings?.delete(node.hashes[0]!) === true, "a parent finds its child");
      if (siblings.size === 0) node.parent.children = null;
      this.#freeIds.push(node.id);
    }
  }
}

function adopt(parent: IndexNode, child: IndexNode): void {
  child.parent = parent;
  parent.children ??= new Map();
  parent.children.set(child.hashes[0]!, child);
}

/**
 * Counts the pages of `path` from `depth` on that are the node's; its first one is. A hash covers all pages
 * before, so that one equal page means that all before it are equal.
 */
function commonPages({ hashes }: IndexNode, path: Float64Array, depth: number): number {
  let equal = 1;
  let differs = Math.min(hashes.length, path.length - depth) + 1;
  if (hashes[differs - 2] === path[depth + differs - 2]) return differs - 1;
  while (differs - equal > 1) {
    const middle = (equal + differs) >> 1;
    if (hashes[middle - 1] === path[depth + middle - 1]) equal = middle;
    else differs = middle;
  }
  return equal;
}

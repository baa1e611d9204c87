import { assert } from "../../base/assert.ts";
import type { CacheNotice, CacheNotices } from "../cache/notice.ts";
import { EvictionFront } from "./eviction-front.ts";
import { IndexOrder } from "./index-order.ts";
import { IndexSpan, NO_SPAN } from "./index-span.ts";

/** Which notices of an engine are next. */
interface Stream {
  epoch: number;
  next: number;
}

/** The part of a path that the index has. */
export interface KnownPrefix {
  /** The deepest span that has pages of the path, maybe not all of its own. */
  readonly span: IndexSpan;
  readonly pages: number;
}

/**
 * The prefix trees of all engines in one: a radix tree over page hashes (Preble's global tree, arXiv:2407.00023
 * §3.2), in which every span knows how much of it each engine has.
 *
 * What engines have is what they tell by their notices, in order and without a gap, and nothing else is assumed
 * to be cached. A promise stands for what a sequence on its way to an engine will have put there.
 */
export class PrefixIndex {
  readonly #windowMs: number;
  readonly #root: IndexSpan;
  /** By id; removed spans stay until their id is given to another. */
  readonly #spans: IndexSpan[] = [];
  readonly #freeIds: number[] = [];
  readonly #order: IndexOrder;
  readonly #streams: Stream[];
  readonly #pagesCached: Int32Array;
  #pages = 0;
  readonly #fronts: readonly EvictionFront[];
  /** Number of the last look-up (`match`); those of spans are 0 before any. */
  #look = 1;
  /** What it found, by engine. */
  #found: Int32Array | null = null;
  readonly #isFound = (span: IndexSpan): boolean => span.look === this.#look;
  /** Where the last walk ended: page `#depth` of the path, inside or at the end of `#at`. */
  #at: IndexSpan;
  #depth = 0;

  /** Hits are counted over about `windowMs`. */
  constructor(engines: number, windowMs: number) {
    this.#windowMs = windowMs;
    this.#root = new IndexSpan(NO_SPAN, null, 0, new Float64Array(0));
    this.#at = this.#root;
    this.#order = new IndexOrder(this.#spans, engines);
    this.#streams = Array.from({ length: engines }, () => ({ epoch: 0, next: 0 }));
    this.#pagesCached = new Int32Array(engines);
    this.#fronts = this.#streams.map((_, engine) => new EvictionFront(engine, this.#order, windowMs));
  }

  /** Pages and spans of the tree. */
  get size(): { readonly pages: number; readonly spans: number } {
    return { pages: this.#pages, spans: this.#spans.length - this.#freeIds.length };
  }

  /** Pages that the engine has cached. */
  pagesCached(engine: number): number {
    return this.#pagesCached[engine]!;
  }

  /** For each engine, how many leading pages of the path it has or will have; written to `found`, which stays as it is until the
   *  next look; and to `cached`, how many it has now. Null: none of it is known. */
  match(path: Float64Array, found: Int32Array, cached: Int32Array): KnownPrefix | null {
    found.fill(0);
    cached.fill(0);
    this.#found = found;
    this.#look += 1;
    let deepest: IndexSpan | null = null;
    let depth = 0;
    while (depth < path.length) {
      const span: IndexSpan | undefined = (deepest ?? this.#root).children?.get(path[depth]!);
      if (span === undefined) break;
      const common = commonPages(span, path, depth);
      span.addFound(found, cached, common);
      deepest = span;
      span.look = this.#look;
      depth += common;
      if (depth < span.end) break;
    }
    return deepest === null ? null : { span: deepest, pages: depth };
  }

  /** A sequence with this path was placed on the engine, which will have all of it. Returns the span in which the
   *  path ends; null for an empty path. It ends with `settle` or `release`. */
  promise(path: Float64Array, engine: number, nowMs: number): IndexSpan | null {
    if (path.length === 0) return null;
    this.#fronts[engine]!.changed();
    this.#walk(path);
    this.#extend(path);
    for (let span = this.#at; span.parent !== null; span = span.parent) {
      span.addPromise(engine, 1);
      span.hit(engine, nowMs, this.#windowMs);
    }
    this.#touch(this.#at, engine);
    return this.#at;
  }

  /** Ends a promise: what has come of it, the engine has told, and will not evict while the sequence is there. */
  settle(end: IndexSpan, engine: number): void {
    this.#fronts[engine]!.changed();
    for (let span = end; span.parent !== null; span = span.parent) {
      span.addPromise(engine, -1);
      span.addReader(engine, 1);
    }
  }

  /** A sequence that was promised, or has settled, is gone. */
  release(end: IndexSpan, engine: number, isSettled: boolean): void {
    this.#fronts[engine]!.changed();
    for (let span = end; span.parent !== null; span = span.parent) {
      if (isSettled) span.addReader(engine, -1);
      else span.addPromise(engine, -1);
    }
    this.#prune(end);
  }

  /** Takes in what an engine tells. False if something was missed: then the engine is to tell everything. */
  apply(engine: number, { epoch, number, isWhole, notices }: CacheNotices): boolean {
    const stream = this.#streams[engine]!;
    if (epoch !== stream.epoch) return true;
    this.#fronts[engine]!.changed();
    const isMissing = !isWhole && number !== stream.next;
    stream.next = number + 1;
    // After a gap, what these notices say is true all the same, only not everything.
    if (isWhole || isMissing) this.#forget(engine);
    for (const notice of notices) this.#note(engine, notice);
    return !isMissing;
  }

  /** The engine is gone, and so is all that it had; its next life is number `epoch`, empty at first. */
  restart(engine: number, epoch: number): void {
    this.#forget(engine);
    this.#streams[engine] = { epoch, next: 0 };
  }

  /**
   * What evicting `pages` pages would cost the sequences that come back for them: over the spans that would go, the time to
   * compute them again, weighed by their part of the engine's `hits` in the window (Preble's M). What a sequence there
   * reads, or will, is not evicted, nor what the last `match` found. `recomputeMs` takes pages and the page that they begin at.
   */
  evictionMs(
    engine: number,
    pages: number,
    hits: number,
    nowMs: number,
    recomputeMs: (pages: number, first: number) => number,
  ): number {
    // What begins with a page that it lacks it has nothing of.
    const stays = this.#found?.[engine] === 0 ? null : this.#isFound;
    return this.#fronts[engine]!.costMs(pages, nowMs, stays, recomputeMs) / Math.max(1, hits);
  }

  /** All spans but the root, parents first. For checks and pictures. */
  *spans(): Generator<IndexSpan> {
    const stack = [...(this.#root.children?.values() ?? [])];
    for (let span = stack.pop(); span !== undefined; span = stack.pop()) {
      yield span;
      if (span.children !== null) stack.push(...span.children.values());
    }
  }

  /** The spans that an engine has some of, in the order in which it is expected to evict them. */
  *evictionOrder(engine: number): Generator<IndexSpan> {
    for (let span = this.#order.oldest(engine); span !== null; span = this.#order.newer(span, engine)) {
      yield span;
    }
  }

  #note(engine: number, { kind, path, from }: CacheNotice): void {
    this.#walk(path);
    if (kind === "insert") {
      if (this.#depth < path.length) this.#extend(path);
      for (let span = this.#at; span.parent !== null; span = span.parent) {
        const pages = Math.min(span.pages, path.length - span.first);
        if (pages > span.cached(engine)) this.#setCached(span, engine, pages);
      }
      this.#touch(this.#at, engine);
    } else if (this.#depth === path.length) {
      for (let span = this.#at; span.parent !== null && span.end > from; span = span.parent) {
        const pages = Math.max(0, from - span.first);
        if (pages < span.cached(engine)) this.#setCached(span, engine, pages);
      }
      this.#prune(this.#at);
    }
  }

  #forget(engine: number): void {
    this.#fronts[engine]!.changed();
    for (let span = this.#order.oldest(engine); span !== null; span = this.#order.oldest(engine)) {
      this.#setCached(span, engine, 0);
      this.#prune(span);
    }
  }

  #setCached(span: IndexSpan, engine: number, pages: number): void {
    const before = span.cached(engine);
    this.#pagesCached[engine]! += pages - before;
    if (before > 0 && pages === 0) this.#order.remove(span, engine);
    span.setCached(engine, pages);
    if (before === 0 && pages > 0) this.#order.append(span, engine);
  }

  /** The path's spans are the engine's most recently used ones now, stems after their branches. */
  #touch(end: IndexSpan, engine: number): void {
    for (let span = end; span.parent !== null; span = span.parent) {
      if (span.cached(engine) === 0) continue;
      this.#order.remove(span, engine);
      this.#order.append(span, engine);
    }
  }

  /** Goes down the path as far as the tree does. */
  #walk(path: Float64Array): void {
    let span = this.#root;
    let depth = 0;
    while (depth < path.length && depth === span.end) {
      const child = span.children?.get(path[depth]!);
      if (child === undefined) break;
      span = child;
      depth += commonPages(child, path, depth);
    }
    this.#at = span;
    this.#depth = depth;
  }

  /** Makes the path end with a span, from where the last walk ended; `#at` is that span then. */
  #extend(path: Float64Array): void {
    if (this.#depth < this.#at.end) this.#at = this.#split(this.#at, this.#depth - this.#at.first);
    if (this.#depth === path.length) return;
    const stem = this.#at;
    this.#at = this.#create(stem, this.#depth, path.slice(this.#depth));
    this.#pages += this.#at.pages;
    adopt(stem, this.#at);
    this.#depth = path.length;
  }

  /** Cuts a span after its first `pages` pages; returns the new upper part. */
  #split(span: IndexSpan, pages: number): IndexSpan {
    const upper = this.#create(span.parent!, span.first, span.hashes.slice(0, pages));
    span.splitInto(upper, pages);
    for (let index = 0; index < upper.holders; index++) {
      const engine = upper.holder(index);
      this.#fronts[engine]!.changed();
      const below = span.cached(engine) - upper.cached(engine);
      if (upper.cached(engine) > 0) this.#order.insertAfter(span, upper, engine);
      if (upper.cached(engine) > 0 && below === 0) this.#order.remove(span, engine);
      span.setCached(engine, below);
    }
    adopt(span.parent!, upper);
    adopt(upper, span);
    return upper;
  }

  #create(parent: IndexSpan, first: number, hashes: Float64Array): IndexSpan {
    const id = this.#freeIds.pop() ?? this.#spans.length;
    const span = new IndexSpan(id, parent, first, hashes);
    this.#spans[id] = span;
    return span;
  }

  /** Takes out the pages at the end of a branch that no engine has: those of `end`, if nothing goes on from it, and if it
   *  had no others, then those of its parents likewise. */
  #prune(end: IndexSpan): void {
    for (let span = end; span.parent !== null && span.children === null; span = span.parent) {
      const needed = span.needed();
      this.#pages -= span.pages - needed;
      if (needed > 0) {
        span.cut(needed);
        return;
      }
      const siblings = span.parent.children;
      assert(siblings?.delete(span.hashes[0]!) === true, "a parent finds its child");
      if (siblings.size === 0) span.parent.children = null;
      this.#freeIds.push(span.id);
    }
  }
}

function adopt(parent: IndexSpan, child: IndexSpan): void {
  child.parent = parent;
  parent.children ??= new Map();
  parent.children.set(child.hashes[0]!, child);
}

/** How many pages of `path` from `depth` on are the span's; its first one is. A hash is of everything before, so one
 *  equal page means that all before it are. */
function commonPages({ hashes }: IndexSpan, path: Float64Array, depth: number): number {
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

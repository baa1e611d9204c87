import { assert } from "../../base/assert.ts";
import type { Span } from "./radix-tree.ts";

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

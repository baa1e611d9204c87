import {
  EVICTABLE,
  FIRST,
  FRONT_WORDS,
  HITS_NOW,
  HITS_THEN,
  type IndexNode,
  SINCE_MS,
} from "./index-node.ts";
import type { IndexOrder } from "./index-order.ts";

/** Nodes that an estimate reads at most; it assumes that further ones are like these. */
const NODES_MAX = 64;

/**
 * The nodes that one engine would evict first, in order. Their fields are copied to one array, so that estimates do not
 * follow the links of nodes. The index reports each change of a node or of the order.
 */
export class EvictionFront {
  readonly #engine: number;
  readonly #order: IndexOrder;
  readonly #windowMs: number;
  /** The copied nodes, and the fields of each. */
  readonly #nodes: IndexNode[] = [];
  readonly #words = new Float64Array(NODES_MAX * FRONT_WORDS);

  /** Hits are counted over about `windowMs`. */
  constructor(engine: number, order: IndexOrder, windowMs: number) {
    this.#engine = engine;
    this.#order = order;
    this.#windowMs = windowMs;
  }

  /** Marks a node, whose fields the next estimate copies again. */
  changed(node: IndexNode): void {
    const index = this.#indexOf(node);
    if (index >= 0) this.#words[index * FRONT_WORDS + SINCE_MS] = Number.NEGATIVE_INFINITY;
  }

  /** Takes out a node that leaves the order. */
  removed(node: IndexNode): void {
    const index = this.#indexOf(node);
    if (index < 0) return;
    node.copies -= 1;
    this.#words.copyWithin(index * FRONT_WORDS, (index + 1) * FRONT_WORDS, this.#nodes.length * FRONT_WORDS);
    this.#nodes.splice(index, 1);
  }

  /** Drops the nodes behind `older`, after which another one was inserted. */
  insertedAfter(older: IndexNode): void {
    const index = this.#indexOf(older);
    if (index < 0) return;
    for (const node of this.#nodes.splice(index + 1)) node.copies -= 1;
  }

  /**
   * Milliseconds to recompute `pages` evicted pages, weighted by the hits of each. `stays`: true for a node that
   * would not be evicted; null: there is none. `recomputeMs` gets a page count and the index of the first page.
   */
  costMs(
    pages: number,
    nowMs: number,
    stays: ((node: IndexNode) => boolean) | null,
    recomputeMs: (pages: number, first: number) => number,
  ): number {
    const [nodes, words] = [this.#nodes, this.#words];
    let left = pages;
    let sumMs = 0;
    let looked = 0;
    for (; left > 0 && looked < NODES_MAX && (looked < nodes.length || this.#read(nowMs)); looked++) {
      const at = looked * FRONT_WORDS;
      // The node has changed, or its hits are outside of the window.
      if (nowMs - words[at + SINCE_MS]! >= this.#windowMs) this.#copy(nodes[looked]!, nowMs, looked);
      const share = 1 - (nowMs - words[at + SINCE_MS]!) / this.#windowMs;
      const evictable = words[at + EVICTABLE]!;
      if (evictable === 0 || stays?.(nodes[looked]!)) continue;
      const taken = Math.min(left, evictable);
      const returns = words[at + HITS_NOW]! + share * words[at + HITS_THEN]!;
      if (returns > 0) sumMs += recomputeMs(taken, words[at + FIRST]! + evictable - taken) * returns;
      left -= taken;
    }
    const isCutShort = left > 0 && left < pages && looked === NODES_MAX && this.#next() !== null;
    return (isCutShort ? pages / (pages - left) : 1) * sumMs;
  }

  /** Copies one more node; false if there is none. */
  #read(nowMs: number): boolean {
    const node = this.#next();
    if (node === null) return false;
    this.#copy(node, nowMs, this.#nodes.length);
    this.#nodes.push(node);
    node.copies += 1;
    return true;
  }

  /** Index among the copies; negative: it is not there. */
  #indexOf(node: IndexNode): number {
    return node.copies === 0 ? -1 : this.#nodes.indexOf(node);
  }

  #copy(node: IndexNode, nowMs: number, index: number): void {
    node.readEviction(this.#engine, nowMs, this.#windowMs, this.#words, index * FRONT_WORDS);
  }

  #next(): IndexNode | null {
    const last = this.#nodes.at(-1);
    return last === undefined ? this.#order.oldest(this.#engine) : this.#order.newer(last, this.#engine);
  }
}

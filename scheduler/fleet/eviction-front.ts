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

/** How many spans a look goes through; beyond, they are taken to be like those. */
const LOOK = 64;

/**
 * What one engine would evict first. What is read of its spans, which lie anywhere in memory, is kept side by side until
 * something happens there: most looks are at engines where nothing has happened since the last one.
 */
export class EvictionFront {
  readonly #engine: number;
  readonly #order: IndexOrder;
  readonly #windowMs: number;
  /** As many as were asked for, and what was read of each. */
  readonly #nodes: IndexNode[] = [];
  readonly #words = new Float64Array(LOOK * FRONT_WORDS);

  /** Hits are counted over about `windowMs`. */
  constructor(engine: number, order: IndexOrder, windowMs: number) {
    this.#engine = engine;
    this.#order = order;
    this.#windowMs = windowMs;
  }

  /** What the engine has, or who reads it, is another now. */
  changed(): void {
    this.#nodes.length = 0;
  }

  /** The time to compute `pages` evicted pages again, times how often each is asked for. `stays`: which spans are not evicted all
   *  the same; null: none. `recomputeMs` takes pages and the page that they begin at. */
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
    for (; left > 0 && looked < LOOK && (looked < nodes.length || this.#read(nowMs)); looked++) {
      const at = looked * FRONT_WORDS;
      const share = 1 - (nowMs - words[at + SINCE_MS]!) / this.#windowMs;
      if (share <= 0) {
        // Its hits are of long ago.
        this.changed();
        return this.costMs(pages, nowMs, stays, recomputeMs);
      }
      const evictable = words[at + EVICTABLE]!;
      if (evictable === 0 || stays?.(nodes[looked]!)) continue;
      const taken = Math.min(left, evictable);
      const returns = words[at + HITS_NOW]! + share * words[at + HITS_THEN]!;
      if (returns > 0) sumMs += recomputeMs(taken, words[at + FIRST]! + evictable - taken) * returns;
      left -= taken;
    }
    const isCutShort = left > 0 && left < pages && looked === LOOK && this.#next() !== null;
    return (isCutShort ? pages / (pages - left) : 1) * sumMs;
  }

  /** One span more; false if there is none. */
  #read(nowMs: number): boolean {
    const node = this.#next();
    if (node === null) return false;
    node.readEviction(this.#engine, nowMs, this.#windowMs, this.#words, this.#nodes.length * FRONT_WORDS);
    this.#nodes.push(node);
    return true;
  }

  #next(): IndexNode | null {
    const last = this.#nodes.at(-1);
    return last === undefined ? this.#order.oldest(this.#engine) : this.#order.newer(last, this.#engine);
  }
}

import type { EvictionPolicy } from "../../scheduler/cache/eviction.ts";
import { KvCacheManager } from "../../scheduler/cache/kv-cache-manager.ts";
import { LruList, type RadixNode } from "../../scheduler/cache/radix-tree.ts";
import { type CostModel, promptMs } from "../../scheduler/cost/cost-model.ts";
import type { CacheBaseline } from "../../scheduler/policy.ts";

/** Target for the time to first token of every turn, as in the paper. */
const TARGET_MS = 200;
/** Expected new tokens of a conversation's next turn. */
const NEXT_TOKENS = 256;

/**
 * Tail-optimized LRU (T-LRU, arXiv:2510.15152 §3): first evicts ends of conversations that the next turn can
 * recompute within the target, then the least recently used nodes.
 */
export const tailLruCache: CacheBaseline = {
  kind: "baseline",
  open: (spec, epoch, costs) =>
    new KvCacheManager(spec, epoch, costs, { eviction: new TailLru(sparedTokens(costs)) }),
};

/** Tokens at the end of a conversation that its next turn can compute within the target. */
export function sparedTokens(costs: CostModel): number {
  let [fits, exceeds] = [0, 1];
  while (promptMs(costs, exceeds, 0) <= TARGET_MS) [fits, exceeds] = [exceeds, 2 * exceeds];
  while (exceeds - fits > 1) {
    const middle = Math.floor((fits + exceeds) / 2);
    if (promptMs(costs, middle, 0) <= TARGET_MS) fits = middle;
    else exceeds = middle;
  }
  return Math.max(0, fits - NEXT_TOKENS);
}

/** LRU order with leaves that are cheap to recompute first. */
export class TailLru implements EvictionPolicy {
  readonly pagesProtected = 0;
  readonly #spared: number;
  readonly #nodes = new LruList();
  /**
   * Tokens of the longest conversation that ended in a node or below it, even if its end has been evicted.
   */
  readonly #lengths = new WeakMap<RadixNode, number>();

  /** `spared`: tokens at the end of a conversation that may be evicted first. */
  constructor(spared: number) {
    this.#spared = spared;
  }

  get first(): RadixNode | null {
    for (const node of this.#nodes) if (this.#isSpared(node)) return node;
    return this.#nodes.oldest;
  }

  isProtected(): boolean {
    return false;
  }

  reasonOf(): "least_recent" {
    return "least_recent";
  }

  add(node: RadixNode): void {
    this.#lengthen(node, node.end);
    this.#nodes.append(node);
  }

  giveUp(node: RadixNode): void {
    this.remove(node);
    this.#nodes.prepend(node);
  }

  remove(node: RadixNode): void {
    node.order?.remove(node);
    if (node.parent !== null) this.#lengthen(node.parent, this.#lengths.get(node) ?? node.end);
  }

  tracked(): void {}

  changed(): void {}

  shrank(): void {}

  *[Symbol.iterator](): Generator<RadixNode> {
    for (const node of this.#nodes) if (this.#isSpared(node)) yield node;
    for (const node of this.#nodes) if (!this.#isSpared(node)) yield node;
  }

  #lengthen(node: RadixNode, length: number): void {
    this.#lengths.set(node, Math.max(this.#lengths.get(node) ?? 0, length));
  }

  #isSpared(node: RadixNode): boolean {
    return node.isLeaf && this.#lengths.get(node)! - node.end < this.#spared;
  }
}

import type { EvictionPolicy } from "../../scheduler/cache/eviction.ts";
import { KvCacheManager } from "../../scheduler/cache/kv-cache-manager.ts";
import { LruList, type RadixNode } from "../../scheduler/cache/radix-tree.ts";
import type { ChunkState } from "../../scheduler/core.ts";
import type { AdmissionRule } from "../../scheduler/engine/admission-rule.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";
import type { CacheBaseline } from "../../scheduler/policy.ts";

/** Admits in order of arrival until the last page is used, whatever prefixes are in flight. */
export const plainAdmission: AdmissionRule = {
  headroom: () => 0,
  findInFlightPrefix: () => null,
  promptOrder: (prompts) => prompts.slice(),
  overtakable: () => null,
  backOffSteps: () => 0,
};

/** Prefix cache with plain LRU eviction. */
export const recencyCache: CacheBaseline = {
  kind: "baseline",
  open: (spec, epoch, costs) => new KvCacheManager(spec, epoch, costs, { eviction: new RecencyEviction() }),
};

/** No prefix cache. */
export const noCache: CacheBaseline = {
  kind: "baseline",
  open: (spec, epoch, costs) => new Uncached(spec, epoch, costs, { eviction: new RecencyEviction() }),
};

class RecencyEviction implements EvictionPolicy {
  readonly pagesProtected = 0;
  readonly #nodes = new LruList();

  get first(): RadixNode | null {
    return this.#nodes.oldest;
  }

  isProtected(): boolean {
    return false;
  }

  add(node: RadixNode): void {
    this.#nodes.append(node);
  }

  giveUp(node: RadixNode): void {
    this.remove(node);
    this.#nodes.prepend(node);
  }

  remove(node: RadixNode): void {
    node.order?.remove(node);
  }

  tracked(): void {}

  changed(): void {}

  shrank(): void {}

  [Symbol.iterator](): Iterator<RadixNode> {
    return this.#nodes[Symbol.iterator]();
  }
}

/** KV cache manager that hands no pages to the prefix cache, so that lookups find none. */
class Uncached extends KvCacheManager {
  override track(): void {}

  override publish(): void {}

  override planState(sequence: Sequence, end: number): ChunkState | null {
    return super.planState(sequence, end, false);
  }

  override free(sequence: Sequence): void {
    super.free(sequence, false);
  }
}

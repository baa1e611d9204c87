import type { EvictionPolicy } from "../../scheduler/cache/eviction.ts";
import { KvCacheManager } from "../../scheduler/cache/kv-cache-manager.ts";
import { LruList, type RadixNode } from "../../scheduler/cache/radix-tree.ts";
import type { AdmissionRule } from "../../scheduler/engine/admission-rule.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";
import type { CacheBaseline } from "../../scheduler/policy.ts";

/** Admits to the last page, in order of arrival, whatever others compute now. */
export const plainAdmission: AdmissionRule = {
  headroom: () => 0,
  findInFlightPrefix: () => null,
  promptOrder: (prompts) => prompts.slice(),
  overtakable: () => null,
  backOffSteps: () => 0,
};

/** A prefix cache in which recency alone decides what is evicted. */
export const recencyCache: CacheBaseline = {
  kind: "baseline",
  open: (pagesTotal, pageTokens, epoch) =>
    new KvCacheManager(pagesTotal, pageTokens, epoch, new RecencyEviction()),
};

/** No prefix cache. */
export const noCache: CacheBaseline = {
  kind: "baseline",
  open: (pagesTotal, pageTokens, epoch) => new Uncached(pagesTotal, pageTokens, epoch, new RecencyEviction()),
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

  untracked(): void {}

  shrank(): void {}

  [Symbol.iterator](): Iterator<RadixNode> {
    return this.#nodes[Symbol.iterator]();
  }
}

/** Hands nothing over to the cache, so that nothing is found there. */
class Uncached extends KvCacheManager {
  override track(): void {}

  override publish(): void {}

  override free(sequence: Sequence): void {
    super.free(sequence, false);
  }
}

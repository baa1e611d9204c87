import type { Eviction } from "../../scheduler/cache/eviction.ts";
import { EvictionOrder, type Span } from "../../scheduler/cache/radix-tree.ts";
import { Residency } from "../../scheduler/cache/residency.ts";
import type { AdmissionRule } from "../../scheduler/engine/admission-rule.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";
import type { CacheBaseline } from "../../scheduler/policy.ts";

/** Admits to the last page, in order of arrival, whatever others compute now. */
export const plainAdmission: AdmissionRule = {
  headroom: () => 0,
  findOwner: () => null,
  promptOrder: (prompts) => prompts.slice(),
  overtakable: () => null,
  backOffSteps: () => 0,
};

/** A prefix cache in which recency alone decides what is evicted. */
export const recencyCache: CacheBaseline = {
  kind: "baseline",
  open: (pagesTotal, pageTokens, epoch) =>
    new Residency(pagesTotal, pageTokens, epoch, new RecencyEviction()),
};

/** No prefix cache. */
export const noCache: CacheBaseline = {
  kind: "baseline",
  open: (pagesTotal, pageTokens, epoch) => new Uncached(pagesTotal, pageTokens, epoch, new RecencyEviction()),
};

class RecencyEviction implements Eviction {
  readonly pagesWanted = 0;
  readonly #spans = new EvictionOrder();

  get first(): Span | null {
    return this.#spans.oldest;
  }

  isWanted(): boolean {
    return false;
  }

  add(span: Span): void {
    this.#spans.append(span);
  }

  giveUp(span: Span): void {
    this.remove(span);
    this.#spans.prepend(span);
  }

  remove(span: Span): void {
    span.order?.remove(span);
  }

  followed(): void {}

  unfollowed(): void {}

  shrank(): void {}

  [Symbol.iterator](): Iterator<Span> {
    return this.#spans[Symbol.iterator]();
  }
}

/** Hands nothing over to the cache, so that nothing is found there. */
class Uncached extends Residency {
  override follow(): void {}

  override publish(): void {}

  override leave(sequence: Sequence): void {
    super.leave(sequence, false);
  }
}

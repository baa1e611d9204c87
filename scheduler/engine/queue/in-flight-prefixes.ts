import { assert } from "../../../base/assert.ts";
import { commonLength } from "../../cache/radix-tree.ts";
import type { Sequence } from "../sequence.ts";

interface Waiter {
  readonly sequence: Sequence;
  /** Wakes when the owner has published this many tokens. */
  readonly tokens: number;
}

/**
 * Prefix-first start-up: a sequence whose uncached prefix a running one (its owner) is computing waits for
 * those pages instead of computing them again (Parrot's shared contexts, arXiv:2405.19888 §5.3, and
 * BatchLLM's prefix before its group, arXiv:2412.03594 §4.3.1, for online work). n equal prompts at once cost
 * one prompt, not n.
 *
 * No sequence waits forever: an owner has all the pages that its prompt needs, and an unfinished prompt that has had no
 * tokens for two seconds is before all others of its objective (step/prompt-order.ts). If the owner ends, is paused or
 * preempted, its waiters go back to the queue.
 */
export class InFlightPrefixes {
  readonly #waiters = new Map<Sequence, Waiter[]>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  park(sequence: Sequence, owner: Sequence, tokens: number): void {
    sequence.queued.owner = owner;
    const waiters = this.#waiters.get(owner);
    if (waiters === undefined) this.#waiters.set(owner, [{ sequence, tokens }]);
    else waiters.push({ sequence, tokens });
    this.#size += 1;
  }

  remove(sequence: Sequence): void {
    const { owner } = sequence.queued;
    assert(owner !== null, "the sequence waits for a prefix");
    this.#releaseHeld(owner, (waiter) => waiter.sequence === sequence);
  }

  /** Lets go of those that wait for no more than the owner's first `tokens` tokens. */
  wake(owner: Sequence, tokens: number): readonly Sequence[] {
    return this.#releaseHeld(owner, (waiter) => waiter.tokens <= tokens);
  }

  /** Each waiting sequence, and for how many tokens of which owner it waits. For checks. */
  *waits(): Generator<{ readonly waiter: Sequence; readonly owner: Sequence; readonly tokens: number }> {
    for (const [owner, waiters] of this.#waiters) {
      for (const { sequence, tokens } of waiters) yield { waiter: sequence, owner, tokens };
    }
  }

  /** Takes out those of an owner's waiters that `goes` is true of, and returns them. */
  #releaseHeld(owner: Sequence, goes: (waiter: Waiter) => boolean): readonly Sequence[] {
    const waiters = this.#waiters.get(owner);
    if (waiters === undefined) return [];
    const rest = waiters.filter((waiter) => !goes(waiter));
    const gone = waiters.filter(goes).map(({ sequence }) => sequence);
    if (rest.length === 0) this.#waiters.delete(owner);
    else this.#waiters.set(owner, rest);
    for (const sequence of gone) sequence.queued.owner = null;
    this.#size -= gone.length;
    return gone;
  }
}

/** A running sequence that is about to compute tokens which the waiting one shares, and how many tokens they
 *  share. */
export interface InFlightPrefix {
  readonly owner: Sequence;
  readonly tokens: number;
}

/**
 * Finds the running sequence whose unfinished prompt has most in common with a waiting one beyond what is
 * cached; null if waiting would save fewer than `sharedTokensMin` tokens. Counts whole pages: only those are
 * published.
 */
export function findInFlightPrefix(
  waiting: Sequence,
  prompts: readonly Sequence[],
  pageTokens: number,
  sharedTokensMin: number,
): InFlightPrefix | null {
  let best: InFlightPrefix | null = null;
  let tokensMin = waiting.cachedTokens + sharedTokensMin;
  for (const owner of prompts) {
    if (owner.isDecoding || owner.isPaused || owner.isAborted) continue;
    const limit = Math.min(waiting.cachedMax, owner.length, sharedMax(owner, waiting));
    if (limit < tokensMin) continue;
    const shared = commonLength(waiting.tokens, 0, limit, owner.tokens);
    const tokens = shared - (shared % pageTokens);
    if (tokens < tokensMin) continue;
    best = { owner, tokens };
    tokensMin = tokens + 1;
  }
  return best;
}

/** How many tokens the two may share at most. */
function sharedMax({ spec: one, cacheKey: key }: Sequence, { spec: other, cacheKey }: Sequence): number {
  if (key === cacheKey) return Number.POSITIVE_INFINITY;
  return one.adapter === other.adapter ? Math.min(one.publicTokens ?? 0, other.publicTokens ?? 0) : 0;
}

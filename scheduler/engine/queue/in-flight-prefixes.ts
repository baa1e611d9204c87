import { assert } from "../../../base/assert.ts";
import { commonLength } from "../../cache/radix-tree.ts";
import type { Sequence } from "../sequence.ts";

interface Waiter {
  readonly sequence: Sequence;
  /** The sequence wakes when the owner has published this many tokens. */
  readonly tokens: number;
}

/**
 * Prefix-first start-up: a sequence waits if a running one (its owner) is computing its uncached prefix,
 * instead of computing it again. This applies two ideas to online work. They are Parrot's shared contexts
 * (arXiv:2405.19888 §5.3), and BatchLLM's prefix before its group (arXiv:2412.03594 §4.3.1). So n equal
 * prompts at once cost one prompt, not n.
 *
 * No sequence waits forever, as an owner has all the pages that its prompt needs. After two seconds without
 * tokens, an unfinished prompt precedes all others of its objective (step/prompt-order.ts). If the owner
 * ends, is paused or preempted, its waiters return to the queue.
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
    this.#unpark(owner, (waiter) => waiter.sequence === sequence);
  }

  /** Wakes sequences that wait for no more than the owner's first `tokens` tokens. */
  wake(owner: Sequence, tokens: number): readonly Sequence[] {
    return this.#unpark(owner, (waiter) => waiter.tokens <= tokens);
  }

  /** Each waiting sequence, its owner, and the number of tokens that it waits for. For checks. */
  *waits(): Generator<{ readonly waiter: Sequence; readonly owner: Sequence; readonly tokens: number }> {
    for (const [owner, waiters] of this.#waiters) {
      for (const { sequence, tokens } of waiters) yield { waiter: sequence, owner, tokens };
    }
  }

  /** Removes and returns the sequences parked behind an owner for which `goes` is true. */
  #unpark(owner: Sequence, goes: (waiter: Waiter) => boolean): readonly Sequence[] {
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

/** A running sequence that computes a prefix which a waiting one shares, and the length of that prefix. */
export interface InFlightPrefix {
  readonly owner: Sequence;
  readonly tokens: number;
}

/**
 * Finds the running sequence whose unfinished prompt shares the longest uncached prefix with a waiting one.
 * Null: waiting would save fewer than `sharedTokensMin` tokens. Only whole pages count that the owner has
 * yet to compute, since only these are published.
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
    if (tokens < tokensMin || tokens <= owner.computed) continue;
    best = { owner, tokens };
    tokensMin = tokens + 1;
  }
  return best;
}

/** Most tokens that the two may share. */
function sharedMax({ spec: one, cacheKey: key }: Sequence, { spec: other, cacheKey }: Sequence): number {
  if (key === cacheKey) return Number.POSITIVE_INFINITY;
  return one.adapter === other.adapter ? Math.min(one.publicTokens ?? 0, other.publicTokens ?? 0) : 0;
}

import type { Sequence } from "../sequence.ts";
import type { QueueOrder } from "./queue-order.ts";

/**
 * A sequence is pressing when it has waited for this share of its TTFT target; the rest is left for its prefill.
 */
const PRESSING = 0.5;

/** Admissions among which one goes to another priority, if a sequence there has aged. */
const AGED_EVERY = 4;

interface Rank {
  readonly priority: number;
  readonly order: QueueOrder;
  /** Sequences with a TTFT target; the first to be pressing is at the front. */
  readonly targeted: Sequence[];
}

/**
 * Orders one tenant's waiting sequences by priority, the lowest number first. Of one priority, pressing
 * sequences go first, and the given order decides among the others. Every fourth admission goes to the
 * first-come aged sequence of another priority, if there is one. So an aged sequence waits for at most four
 * admissions for each aged one that came before it, whatever its number.
 */
export class Ranks implements QueueOrder {
  readonly #orderOf: () => QueueOrder;
  readonly #isAged: (sequence: Sequence, nowMs: number) => boolean;
  /** Ranks by priority; only that of priority 0 may be empty. */
  readonly #ranks: Rank[];
  #size = 0;
  /** The pressing sequence that `peek` returned. */
  #pressing: Sequence | null = null;
  /** The aged sequence that `peek` returned. */
  #aged: Sequence | null = null;
  /** Admissions since the last aged one, capped at `AGED_EVERY` - 1. */
  #others = AGED_EVERY - 1;

  /**
   * `orderOf` makes the order of one priority's sequences; `isAged`: whether a sequence has waited too long.
   */
  constructor(
    orderOf: () => QueueOrder,
    isAged: (sequence: Sequence, nowMs: number) => boolean = () => false,
  ) {
    this.#orderOf = orderOf;
    this.#isAged = isAged;
    this.#ranks = [{ priority: 0, order: orderOf(), targeted: [] }];
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    const { order, targeted } = this.#rankOf(sequence);
    order.add(sequence);
    this.#size += 1;
    const pressingMs = pressingFrom(sequence);
    if (pressingMs === Number.POSITIVE_INFINITY) return;
    let at = targeted.length;
    while (at > 0 && pressingFrom(targeted[at - 1]!) > pressingMs) at -= 1;
    targeted.splice(at, 0, sequence);
  }

  remove(sequence: Sequence): boolean {
    const rank = this.#rankOf(sequence);
    const wasThere = rank.order.remove(sequence);
    if (wasThere) this.#left(rank, sequence);
    return wasThere;
  }

  matched(sequence: Sequence): void {
    const rank = this.#ranks.find(({ priority }) => priority === sequence.service.priority);
    rank?.order.matched?.(sequence);
  }

  peek(nowMs: number): Sequence | null {
    this.#pressing = null;
    const rank = this.#ranks.find(({ order }) => order.size > 0);
    const first = rank?.targeted[0];
    if (first !== undefined && pressingFrom(first) <= nowMs) this.#pressing = first;
    this.#aged = this.#others === AGED_EVERY - 1 ? this.#agedBehind(rank, nowMs) : null;
    return this.#aged ?? this.#pressing ?? rank?.order.peek(nowMs) ?? null;
  }

  take(sequence: Sequence, computedTokens: number): void {
    const rank = this.#rankOf(sequence);
    this.#others = sequence === this.#aged ? 0 : Math.min(this.#others + 1, AGED_EVERY - 1);
    if (sequence === this.#pressing) rank.order.remove(sequence);
    else rank.order.take(sequence, computedTokens);
    this.#left(rank, sequence);
  }

  /**
   * The first to arrive of the sequences that are next in priorities other than that of `first`; null if it
   * is not aged.
   */
  #agedBehind(first: Rank | undefined, nowMs: number): Sequence | null {
    let oldest: Sequence | null = null;
    for (const rank of this.#ranks) {
      if (rank === first) continue;
      const sequence = rank.order.peek(nowMs);
      if (sequence !== null && (oldest === null || sequence.arrival < oldest.arrival)) oldest = sequence;
    }
    return oldest !== null && this.#isAged(oldest, nowMs) ? oldest : null;
  }

  #left(rank: Rank, sequence: Sequence): void {
    this.#size -= 1;
    const at = rank.targeted.indexOf(sequence);
    if (at !== -1) rank.targeted.splice(at, 1);
    // Clients choose the numbers, so unused ones are forgotten.
    if (rank.priority !== 0 && rank.order.size === 0) this.#ranks.splice(this.#ranks.indexOf(rank), 1);
  }

  /** The rank of a sequence, opened if need be. */
  #rankOf({ service }: Sequence): Rank {
    const { priority } = service;
    let at = 0;
    while (at < this.#ranks.length && this.#ranks[at]!.priority < priority) at += 1;
    const found = this.#ranks[at];
    if (found?.priority === priority) return found;
    const rank = { priority, order: this.#orderOf(), targeted: [] };
    this.#ranks.splice(at, 0, rank);
    return rank;
  }
}

/** Time from which a sequence is pressing; Infinity: never. */
function pressingFrom({ arrivedMs, service }: Sequence): number {
  const { ttftMs } = service;
  return ttftMs === null ? Number.POSITIVE_INFINITY : arrivedMs + PRESSING * ttftMs;
}

import type { EngineLoad } from "../messages.ts";

/** Shortest time over which rates are measured; a measurement is at most about twice as long. */
const MEASURED_MS = 30_000;
/** Least price, as a probability per millisecond: that of an engine that evicts nothing. */
const RENT_LEAST = 1 / 7_200_000;

type Totals = Pick<EngineLoad, "pagesTotal" | "evictedPagesTotal">;

/** Counts of an interval: prompt tokens, and those known from earlier prompts, in all and by family. */
interface Counts {
  readonly fromMs: number;
  readonly evicted: number;
  tokens: number;
  known: number;
  readonly byFamily: Map<number, number>;
}

/**
 * Price of memory on one engine, by its recent evictions. In the time in which the engine evicts as many pages as it
 * has (one turnover), an average page is read with the probability that a prompt token is known from earlier
 * prompts. A page is worth keeping if its own probability in the same time is higher.
 *
 * An agent and its subagents are a family. The price for a family leaves out its own reads, since it stands for
 * the loss of the others.
 */
export class MemoryTurnover {
  #before: Counts | null = null;
  #now: Counts | null = null;

  /** Counts a prompt of a family, and those of its tokens that earlier prompts had. */
  asked(family: number, tokens: number, known: number): void {
    if (this.#now === null) return;
    this.#now.tokens += tokens;
    this.#now.known += known;
    const { byFamily } = this.#now;
    byFamily.set(family, (byFamily.get(family) ?? 0) + known);
  }

  /** Begins a new interval if the current one is long enough. */
  measure({ evictedPagesTotal: evicted }: Totals, nowMs: number): void {
    if (this.#now !== null && nowMs - this.#now.fromMs < MEASURED_MS) return;
    this.#before = this.#now;
    this.#now = { fromMs: nowMs, evicted, tokens: 0, known: 0, byFamily: new Map() };
  }

  /** Returns the probability per millisecond that another family reads an average cached page. */
  rent({ pagesTotal, evictedPagesTotal }: Totals, family: number, nowMs: number): number {
    const all = [this.#before, this.#now].filter((counts) => counts !== null);
    const [first] = all;
    if (first === undefined) return RENT_LEAST;
    let [tokens, others] = [0, 0];
    for (const counts of all) {
      tokens += counts.tokens;
      others += counts.known - (counts.byFamily.get(family) ?? 0);
    }
    const turnovers = (evictedPagesTotal - first.evicted) / pagesTotal;
    const elapsedMs = Math.max(nowMs - first.fromMs, MEASURED_MS);
    return Math.max(RENT_LEAST, tokens === 0 ? 0 : (turnovers / elapsedMs) * (others / tokens));
  }
}

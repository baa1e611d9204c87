import type { EngineLoad } from "../messages.ts";

/** Shortest time over which rates are measured; a measurement is at most about twice as long. */
const MEASURED_MS = 30_000;
/** Least chance per millisecond, on an engine that evicts nothing. */
const RENT_LEAST = 1 / 7_200_000;

type Totals = Pick<EngineLoad, "pagesTotal" | "evictedPagesTotal">;

/** Counts of a time: prompt tokens, and by family those that earlier prompts had. */
interface Counts {
  readonly fromMs: number;
  readonly evicted: number;
  tokens: number;
  known: number;
  readonly byFamily: Map<number, number>;
}

/**
 * Price of memory on one engine, by what it evicted of late. An average page is evicted once per turnover of
 * the memory, and would have been read with the chance that a prompt's token is known from earlier prompts. So
 * a page is worth keeping that is read with a higher chance in the same time.
 *
 * An agent and its subagents are a family. Reads of a family do not count in the price that it pays: it is
 * what the others lose.
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

  /** Takes note of what the engine has evicted. */
  measure({ evictedPagesTotal: evicted }: Totals, nowMs: number): void {
    if (this.#now !== null && nowMs - this.#now.fromMs < MEASURED_MS) return;
    this.#before = this.#now;
    this.#now = { fromMs: nowMs, evicted, tokens: 0, known: 0, byFamily: new Map() };
  }

  /** Returns the chance per millisecond with which another family would read an average cached page. */
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

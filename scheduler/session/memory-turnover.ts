import type { EngineLoad } from "../messages.ts";

/** Shortest time over which rates are measured; a measurement is at most about twice as long. */
const MEASURED_MS = 30_000;
/** Least chance per millisecond, on an engine that evicts nothing. */
const RENT_LEAST = 1 / 1_200_000;

type Totals = Pick<EngineLoad, "pagesTotal" | "evictedPagesTotal" | "prefixHitTotal" | "prefixQueriedTotal">;

interface Sample extends Totals {
  readonly atMs: number;
}

/**
 * Price of memory on one engine, by what it evicted of late. An average page is evicted once per turnover of
 * the memory, and would have been read with the chance of a hit. So a page is worth keeping that is read with
 * a higher chance in the same time.
 */
export class MemoryTurnover {
  #before: Sample | null = null;
  #last: Sample | null = null;

  /** Returns the chance per millisecond with which an average cached page would be read. */
  rent(load: Totals, nowMs: number): number {
    this.#note(load, nowMs);
    const before = this.#before!;
    const elapsedMs = Math.max(nowMs - before.atMs, MEASURED_MS);
    const turnovers = (load.evictedPagesTotal - before.evictedPagesTotal) / load.pagesTotal;
    const queried = load.prefixQueriedTotal - before.prefixQueriedTotal;
    const hits = queried === 0 ? 0 : (load.prefixHitTotal - before.prefixHitTotal) / queried;
    return Math.max(RENT_LEAST, (turnovers * hits) / elapsedMs);
  }

  #note({ pagesTotal, evictedPagesTotal, prefixHitTotal, prefixQueriedTotal }: Totals, atMs: number): void {
    if (this.#last !== null && atMs - this.#last.atMs < MEASURED_MS) return;
    const sample = { pagesTotal, evictedPagesTotal, prefixHitTotal, prefixQueriedTotal, atMs };
    this.#before = this.#last ?? sample;
    this.#last = sample;
  }
}

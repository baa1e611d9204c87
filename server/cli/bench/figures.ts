/** Client-side figures of a load test: percentiles, and goodput against a latency target. Pure. */

/** A request that ended or was cut off. Times are milliseconds on one clock. */
export interface Outcome {
  readonly sentMs: number;
  readonly endMs: number;
  /** Time to first token: from sending to the first text; null if there was none. */
  readonly ttftMs: number | null;
  /** Completion tokens. */
  readonly tokens: number;
  /** True if the response was complete. */
  readonly isAnswered: boolean;
}

/** Latency target of goodput. A request is good if it meets both limits. */
export interface Target {
  readonly ttftMs: number;
  /** Maximum mean time per output token after the first. */
  readonly tbtMs: number;
}

export interface Percentiles {
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** Requests that met the target. */
export interface Goodput {
  readonly target: Target;
  /** Good requests over all requests, 0 … 1. */
  readonly share: number;
  readonly perSecond: number;
}

/** Nearest-rank percentiles; null for no values. */
export function percentiles(values: readonly number[]): Percentiles | null {
  if (values.length === 0) return null;
  const sorted = Float64Array.from(values).sort();
  return { p50: rank(sorted, 0.5), p90: rank(sorted, 0.9), p99: rank(sorted, 0.99), max: rank(sorted, 1) };
}

/** Nearest-rank values at each of the shares; null for no values. */
export function quantileCurve(values: readonly number[], shares: readonly number[]): (number | null)[] {
  const sorted = Float64Array.from(values).sort();
  return shares.map((share) => (sorted.length === 0 ? null : rank(sorted, share)));
}

function rank(sorted: Float64Array, share: number): number {
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)]!;
}

/**
 * Time per output token after the first; null for a completion of fewer than two tokens, or of unknown
 * length.
 */
export function perTokenMs({ sentMs, ttftMs, endMs, tokens }: Outcome): number | null {
  if (ttftMs === null || tokens < 2) return null;
  return (endMs - sentMs - ttftMs) / (tokens - 1);
}

export function isGood(outcome: Outcome, target: Target): boolean {
  const { isAnswered, ttftMs } = outcome;
  if (!isAnswered || ttftMs === null || ttftMs > target.ttftMs) return false;
  return (perTokenMs(outcome) ?? 0) <= target.tbtMs;
}

/** Goodput of the requests sent within `seconds`. */
export function goodputOf(outcomes: readonly Outcome[], target: Target, seconds: number): Goodput {
  const good = outcomes.filter((outcome) => isGood(outcome, target)).length;
  return {
    target,
    share: outcomes.length === 0 ? 0 : good / outcomes.length,
    perSecond: seconds > 0 ? good / seconds : 0,
  };
}

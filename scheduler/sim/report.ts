import type { EngineId, Finish } from "../core.ts";
import type { PlacementReason } from "../dispatch/placement.ts";

/** One call of a simulation, from its client's side. Times are virtual milliseconds. */
export interface CallRecord {
  readonly kind: string;
  readonly tenant: string;
  readonly engine: EngineId;
  readonly reason: PlacementReason;
  readonly arrivedMs: number;
  /** Admitted for the first time; null: never. */
  readonly startedMs: number | null;
  /** First token; null: none. */
  readonly firstMs: number | null;
  readonly finishedMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Longest time between two of its tokens; 0 with fewer than two. */
  readonly longestGapMs: number;
  readonly finish: Finish["kind"];
}

/** Shares of a distribution, within 0.5 %. */
export interface Quantiles {
  readonly count: number;
  readonly mean: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly max: number;
}

/** What one engine did. */
export interface EngineRecord {
  readonly steps: number;
  readonly busyMs: number;
  readonly promptTokensComputed: number;
  readonly promptTokensCached: number;
  readonly tokensGenerated: number;
  readonly preemptions: number;
  readonly waitingMax: number;
  readonly evictedPages: number;
}

/** Everything a simulation tells. */
export interface SimulationReport {
  readonly policy: string;
  readonly workload: string;
  readonly seed: number;
  /** Virtual time from the first arrival to the last end. */
  readonly durationMs: number;
  readonly calls: readonly CallRecord[];
  readonly engines: readonly EngineRecord[];
  /** Of calls that ended well: arrival to first token, gaps between tokens, output tokens after the first per time,
   *  arrival to end, arrival to admission. Milliseconds. */
  readonly ttft: Quantiles;
  readonly tbt: Quantiles;
  readonly tpot: Quantiles;
  readonly latency: Quantiles;
  readonly queueing: Quantiles;
  /** Prompt tokens found in the cache over prompt tokens. */
  readonly hitRate: number;
  /** Equal for equal histories: every placement, step and token with its time (history.ts). */
  readonly historyHash: string;
}

import type { EngineId, Finish } from "../scheduler/core.ts";
import type { PlacementReason } from "../scheduler/fleet/placement.ts";
import { Histogram, type Quantiles } from "./histogram.ts";

/** Record of one request, from its client's side. Times are virtual milliseconds. */
export interface RequestRecord {
  readonly kind: string;
  readonly tenant: string;
  /** Engine of the last placement; null: never placed. */
  readonly engine: EngineId | null;
  readonly reason: PlacementReason;
  readonly arrivedMs: number;
  /** Time of the first admission; null: never admitted. */
  readonly startedMs: number | null;
  /** Time of the first token; null: no token. */
  readonly firstMs: number | null;
  readonly finishedMs: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly outputTokens: number;
  /** Longest time between two tokens; 0 with fewer than two. */
  readonly longestGapMs: number;
  /** Reason of the end; unfinished: the simulation ended before. */
  readonly finish: Finish["kind"] | "unfinished";
}

/** Record of one engine. */
export interface EngineRecord {
  readonly steps: number;
  readonly busyMs: number;
  readonly promptTokensComputed: number;
  readonly promptTokensCached: number;
  readonly tokensGenerated: number;
  readonly preemptions: number;
  readonly waitingMax: number;
  readonly evictedPages: number;
  /** Pages stored on the lower tier, and pages loaded from it. */
  readonly tierStoredPages: number;
  readonly tierLoadedPages: number;
}

/** Report of a simulation. */
export interface SimulationReport {
  readonly policy: string;
  readonly workload: string;
  readonly seed: number;
  /** True if every call ended; false if the simulation stopped before. */
  readonly isComplete: boolean;
  /** Calls that were refused, failed or have not ended; the other figures leave them out. */
  readonly unanswered: number;
  /** Virtual time from the first arrival to the last end. */
  readonly durationMs: number;
  readonly calls: readonly RequestRecord[];
  readonly engines: readonly EngineRecord[];
  /**
   * Times of watched calls in milliseconds. Calls that ended well: arrival to first token, time per token
   * after the first, and arrival to end. All admitted calls: arrival to admission. All tokens but first ones:
   * time since the token before.
   */
  readonly ttft: Quantiles;
  readonly tbt: Quantiles;
  readonly tpot: Quantiles;
  readonly latency: Quantiles;
  readonly queueing: Quantiles;
  /** Cached prompt tokens over prompt tokens, of admitted calls. */
  readonly hitRate: number;
  /** Hash of the history: every placement, step and token with its time (history.ts). */
  readonly historyHash: string;
}

/** Summarizes a run; `tbt` are the gaps between tokens of calls of the `watched` kind; undefined: all. */
export function summarize(
  run: Pick<
    SimulationReport,
    "policy" | "workload" | "seed" | "isComplete" | "calls" | "engines" | "historyHash"
  > & { readonly tbt: Histogram; readonly watched: string | undefined },
): SimulationReport {
  const { watched, ...facts } = run;
  const ttft = new Histogram();
  const tpot = new Histogram();
  const latency = new Histogram();
  const queueing = new Histogram();
  let promptTokens = 0;
  let cachedTokens = 0;
  let lastMs = 0;
  let answered = 0;
  for (const call of run.calls) {
    const { arrivedMs, startedMs, firstMs, finishedMs, outputTokens, finish } = call;
    const isWatched = watched === undefined || call.kind === watched;
    if (startedMs !== null) {
      promptTokens += call.promptTokens;
      cachedTokens += call.cachedTokens;
      if (isWatched) queueing.add(startedMs - arrivedMs);
    }
    lastMs = Math.max(lastMs, finishedMs);
    if (firstMs === null || (finish !== "stop" && finish !== "length")) continue;
    answered += 1;
    if (!isWatched) continue;
    ttft.add(firstMs - arrivedMs);
    latency.add(finishedMs - arrivedMs);
    if (outputTokens > 1) tpot.add((finishedMs - firstMs) / (outputTokens - 1));
  }
  return {
    ...facts,
    unanswered: run.calls.length - answered,
    durationMs: lastMs - (run.calls[0]?.arrivedMs ?? lastMs),
    ttft: ttft.quantiles(),
    tbt: run.tbt.quantiles(),
    tpot: tpot.quantiles(),
    latency: latency.quantiles(),
    queueing: queueing.quantiles(),
    hitRate: promptTokens === 0 ? 0 : cachedTokens / promptTokens,
  };
}

import type { EngineId, Finish } from "../scheduler/core.ts";
import type { PlacementReason } from "../scheduler/fleet/placement.ts";
import { Histogram, type Quantiles } from "./histogram.ts";

/** One request of a simulation, from its client's side. Times are virtual milliseconds. */
export interface RequestRecord {
  readonly kind: string;
  readonly tenant: string;
  /** Where it was placed last; null: nowhere. */
  readonly engine: EngineId | null;
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
  /** unfinished: the simulation ended before. */
  readonly finish: Finish["kind"] | "unfinished";
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
  /** Every call ended; false if the simulation was ended before. */
  readonly isComplete: boolean;
  /** Calls that were refused, failed or have not ended: the figures of those that ended well leave them out. */
  readonly unanswered: number;
  /** Virtual time from the first arrival to the last end. */
  readonly durationMs: number;
  readonly calls: readonly RequestRecord[];
  readonly engines: readonly EngineRecord[];
  /** Milliseconds, of the calls that were watched. Of those that ended well: arrival to first token, time per token after the first, arrival to end; of
   *  all that were admitted, arrival to admission; of all tokens but first ones, the time since the one before. */
  readonly ttft: Quantiles;
  readonly tbt: Quantiles;
  readonly tpot: Quantiles;
  readonly latency: Quantiles;
  readonly queueing: Quantiles;
  /** Prompt tokens found in the cache over prompt tokens, of calls that were admitted. */
  readonly hitRate: number;
  /** Equal for equal histories: every placement, step and token with its time (history.ts). */
  readonly historyHash: string;
}

/** Draws up the report of a run; `tbt` are the gaps between tokens of calls of the `watched` kind; undefined: all. */
export function summarize(
  run: Pick<
    SimulationReport,
    "policy" | "workload" | "seed" | "isComplete" | "calls" | "engines" | "historyHash"
  > & { readonly tbt: Histogram; readonly watched: string | undefined },
): SimulationReport {
  const { watched, ...told } = run;
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
    ...told,
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

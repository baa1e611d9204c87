/** Counterfactual runs from a recording: with another policy, target or number of engines. */

import type { SequenceId } from "../../scheduler/core.ts";
import { unknownCost } from "../../scheduler/cost/linear.ts";
import { OnlineCostModel, type OnlineState } from "../../scheduler/cost/online.ts";
import type { RecordingEntry, RecordingHead } from "../../scheduler/recording/recording.ts";
import type { Arrival, Workload } from "../workload.ts";
import { workloadOf } from "../workloads/parts.ts";

/**
 * Makes a workload of the recorded calls, at their times, with their prompts and answer lengths. An aborted
 * call ends where it was aborted.
 */
export function recordedWorkload(head: RecordingHead, entries: readonly RecordingEntry[]): Workload {
  const lengths = new Map<SequenceId, number>();
  for (const entry of entries) {
    if (entry.kind !== "step") continue;
    for (const one of entry.sampled) {
      if (one.kind !== "token") continue;
      const tokens = 1 + (one.forced?.length ?? 0);
      lengths.set(one.sequence, (lengths.get(one.sequence) ?? 0) + tokens);
    }
  }
  const calls = entries.filter((entry) => entry.kind === "call");
  const startMs = calls[0]?.atMs ?? 0;
  const arrivals = calls.map(({ atMs, sequence }): Arrival => {
    const { id, promptTokens, promptLogprobs, stop, cacheSalt, adapter, service } = sequence;
    const promptRows = promptLogprobs === undefined ? 0 : promptTokens.length - 1;
    const outputTokens = Math.min(stop.tokensMax, Math.max(1, (lengths.get(id) ?? 1) - promptRows));
    return {
      atMs: atMs - startMs,
      promptTokens: () => Int32Array.from(promptTokens),
      outputTokens,
      tokensMax: stop.tokensMax,
      cacheSalt,
      adapter,
      service,
      kind: "recorded",
    };
  });
  return workloadOf("recorded", arrivals, undefined, head.specs[0]!.vocabSize);
}

/** Returns each engine's learnt cost model at the end of the recording. */
export function recordedCosts(head: RecordingHead, entries: readonly RecordingEntry[]): OnlineCostModel[] {
  const states: (OnlineState | null)[] = head.specs.map(() => null);
  for (const entry of entries) if (entry.kind === "costs") states[entry.engine] = entry.state;
  return states.map((state) =>
    state === null ? new OnlineCostModel(unknownCost) : OnlineCostModel.from(state).steady(),
  );
}

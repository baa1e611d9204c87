/** What a recording says about runs that did not happen: another policy, target or number of engines. */

import type { SequenceId } from "../../scheduler/core.ts";
import { unknownCost } from "../../scheduler/cost/linear.ts";
import { OnlineCostModel, type OnlineState } from "../../scheduler/cost/online.ts";
import type { RecordingEntry, RecordingHead } from "../../scheduler/recording/recording.ts";
import type { Arrival, Workload } from "../workload.ts";
import { workloadOf } from "../workloads/parts.ts";

/** The calls at their times, with the prompts that they had and answers as long as they were. A call that was broken off
 *  ends where it was. */
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
    const { id, promptTokens, promptLogprobs, stop, cacheSalt, service } = sequence;
    const told = promptLogprobs === undefined ? 0 : promptTokens.length - 1; // rows of the prompt
    const outputTokens = Math.min(stop.tokensMax, Math.max(1, (lengths.get(id) ?? 1) - told));
    return {
      atMs: atMs - startMs,
      promptTokens: () => Int32Array.from(promptTokens),
      outputTokens,
      tokensMax: stop.tokensMax,
      cacheSalt,
      service,
      kind: "recorded",
    };
  });
  return workloadOf("recorded", arrivals, undefined, head.specs[0]!.vocabSize);
}

/** What each engine had learnt of its costs by the record's end. */
export function recordedCosts(head: RecordingHead, entries: readonly RecordingEntry[]): OnlineCostModel[] {
  const states: (OnlineState | null)[] = head.specs.map(() => null);
  for (const entry of entries) if (entry.kind === "costs") states[entry.engine] = entry.state;
  return states.map((state) =>
    state === null ? new OnlineCostModel(unknownCost) : OnlineCostModel.from(state).steady(),
  );
}

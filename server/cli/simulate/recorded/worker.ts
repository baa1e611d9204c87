/** Entry of the thread that simulates recorded calls with changes. */
import type { RecordingEntry, RecordingHead } from "../../../../scheduler/recording/recording.ts";
import { recordedCosts, recordedWorkload } from "../../../../simulation/recording/what-if.ts";
import type { SimulationReport } from "../../../../simulation/report.ts";
import { simulate } from "../../../../simulation/simulator.ts";
import { ConfigError } from "../../../config.ts";
import { readRecording } from "../../../recording/file.ts";
import { type Arrangement, parseChanges } from "../what-if.ts";
import type { Outcome, WhatIfAnswer, WhatIfQuestion } from "./question.ts";

declare const self: Worker;

self.onmessage = ({ data }: MessageEvent<WhatIfQuestion>) => self.postMessage(answerOf(data));

function answerOf({ path, changes, callsMax }: WhatIfQuestion): WhatIfAnswer {
  try {
    const change = parseChanges(changes);
    const { head, entries } = readRecording(path);
    const recorded = entries.filter(({ kind }) => kind === "call").length;
    if (recorded === 0) return { kind: "refused", message: "no request has been recorded yet" };
    const last = lastCalls(entries, callsMax);
    const before = run(head, last, (arrangement) => arrangement);
    const { calls, durationMs } = before;
    return {
      kind: "simulated",
      calls: calls.length,
      recorded,
      seconds: durationMs / 1000,
      engines: head.specs.length,
      before: outcomeOf(before),
      after: outcomeOf(run(head, last, change)),
    };
  } catch (error) {
    if (error instanceof ConfigError) return { kind: "refused", message: error.message };
    throw error;
  }
}

/** Entries without the calls before the last `callsMax`. */
function lastCalls(entries: readonly RecordingEntry[], callsMax: number): readonly RecordingEntry[] {
  let left = callsMax;
  return entries
    .toReversed()
    .filter(({ kind }) => kind !== "call" || left-- > 0)
    .reverse();
}

function run(
  head: RecordingHead,
  entries: readonly RecordingEntry[],
  change: (arrangement: Arrangement) => Arrangement,
): SimulationReport {
  // Cost models learn while in use, so each simulation starts from those of the recording.
  const costs = recordedCosts(head, entries);
  const devices = head.specs.map((spec, engine) => ({ profile: costs[engine]!, spec }));
  return simulate({
    ...change({ policy: head.policy, devices }),
    workload: recordedWorkload(head, entries),
    seed: 1,
  });
}

function outcomeOf({ unanswered, ttft, tbt, latency, queueing, hitRate }: SimulationReport): Outcome {
  return { unanswered, firstToken: ttft, betweenTokens: tbt, whole: latency, waiting: queueing, hitRate };
}

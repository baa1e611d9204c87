/**
 * Cost of accounts of time (scheduler/explain/): microseconds per step of 64 and 256 sequences, with and without chunks of
 * prompts, and of the copy of all accounts that crosses threads once a second. Shares are of the step by the cost model.
 *
 *     npx bun benchmarks/time-accounts.ts
 */

import type { SequenceId } from "../scheduler/core.ts";
import { chatService } from "../scheduler/core.ts";
import type { StepShape } from "../scheduler/cost/cost-model.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import { OnlineCostModel } from "../scheduler/cost/online.ts";
import { TimeAccount } from "../scheduler/explain/time-account.ts";
import { TimeAccounts, type TimedSequence } from "../scheduler/explain/time-accounts.ts";
import { table } from "../server/cli/table.ts";

const STEPS = 20_000;
const RUNS = 5;
/** Step of a small model on a small machine: the accounts weigh most there. */
const STEP_MS = 5;
const TOKEN_MS = 0.05;

interface Row {
  readonly us: number;
  readonly stepMs: number;
}

function measure(decodes: number, prompts: number): Row {
  let nowMs = 0;
  const costs = new OnlineCostModel(linearCost(STEP_MS, TOKEN_MS));
  const accounts = new TimeAccounts({ nowMs: () => nowMs }, costs, 100);
  const sequences = Array.from({ length: decodes + prompts }, (_, index): TimedSequence => {
    const isDecoding = index < decodes;
    return {
      ...{ id: index as SequenceId, arrival: index, account: new TimeAccount(0, 0), service: chatService },
      ...{ isPaused: false, isDecoding, wasStarted: true, isReturning: true, generated: isDecoding ? 1 : 0 },
    };
  });
  const chunks = sequences.map(({ isDecoding }, index) => ({
    start: isDecoding ? 500 + index : 0,
    tokens: isDecoding ? 1 : 128,
    drafted: 0,
  }));
  const shape: StepShape = {
    prompts: Array.from({ length: prompts }, () => ({ tokens: 128, context: 0 })),
    decodes,
    decodeContext: decodes * 500,
  };
  const stepMs = costs.stepMs(shape);
  let best = Number.POSITIVE_INFINITY;
  for (let run = 0; run < RUNS; run++) {
    const from = Bun.nanoseconds();
    for (let step = 0; step < STEPS; step++) {
      const startMs = nowMs;
      accounts.beginPlan();
      accounts.endPlan();
      nowMs += stepMs;
      accounts.stepEnded(startMs, shape, "done", null);
      for (let index = 0; index < sequences.length; index++) {
        accounts.chunkEnded(sequences[index]!, chunks[index]!, false);
        if (index < decodes) accounts.drew(sequences[index]!, startMs);
      }
    }
    best = Math.min(best, (Bun.nanoseconds() - from) / STEPS / 1000);
  }
  return { us: best, stepMs };
}

function cloneUs(count: number): number {
  const states = Array.from({ length: count }, () => new TimeAccount(0, 0).state(false));
  const from = Bun.nanoseconds();
  for (let run = 0; run < 200; run++) structuredClone(states);
  return (Bun.nanoseconds() - from) / 200 / 1000;
}

const rows = [
  [64, 0],
  [64, 4],
  [256, 0],
].map(([decodes, prompts]) => {
  const { us, stepMs } = measure(decodes!, prompts!);
  const cloned = cloneUs(decodes! + prompts!);
  return [
    decodes!,
    prompts!,
    us.toFixed(1),
    stepMs.toFixed(1),
    `${((100 * us) / 1000 / stepMs).toFixed(2)} %`,
    cloned.toFixed(0),
  ];
});
console.log(table(["decodes", "prompts", "µs per step", "step ms", "share", "µs per second"], rows));

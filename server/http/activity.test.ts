/** Steps that a client of the state stream gets. */
import { expect, test } from "bun:test";
import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { type EngineReport, idleLoad } from "../../scheduler/messages.ts";
import { ActivityLog } from "./activity.ts";

const spec = { pages: 10 } as DeviceSpec;
const engine = 0 as EngineId;

function report(stepsTotal: number, more: Partial<EngineReport> = {}, load: object = {}): EngineReport {
  return {
    number: stepsTotal,
    started: [],
    sequences: [],
    tokens: [],
    logprobs: null,
    finished: [],
    returned: [],
    warmed: [],
    prompts: [],
    progress: [],
    checked: [],
    accounts: [],
    kvEvents: null,
    load: { ...idleLoad(spec), stepsTotal, stepTokens: 10, stepMs: 2, ...load },
    ...more,
  };
}

test("steps are kept only after a first look, and each is told once", () => {
  const log = new ActivityLog(1, 50);
  log.note(engine, report(1));
  expect(log.stepsFrom(0, 0, 8)).toEqual({ steps: [], next: 0 });
  const a = 1 as SequenceId;
  log.note(
    engine,
    report(
      2,
      {
        sequences: [a, a],
        warmed: [{ hint: a, tokens: 3 }],
        checked: [{ sequence: a, tokens: 2, accepted: 1 }],
      },
      { evictedPagesTotal: 4, preemptionsTotal: 1 },
    ),
  );
  log.note(engine, report(2));
  const { steps, next } = log.stepsFrom(0, 0, 8);
  expect([steps.map((step) => step.slice(1)), next]).toEqual([[[2, 1, 4, 3, 2, 4, 1, 0]], 1]);
  expect(log.stepsFrom(0, next, 8)).toEqual({ steps: [], next: 1 });
});

test("steps are joined to as many as are asked for", () => {
  const log = new ActivityLog(1, null);
  log.stepsFrom(0, 0, 8);
  for (let step = 0; step < 10; step++) log.note(engine, report(step));
  const { steps } = log.stepsFrom(0, 0, 4);
  expect(steps.map(([, ms, , prompt]) => [ms, prompt])).toEqual([
    [6, 30],
    [6, 30],
    [6, 30],
  ]);
});

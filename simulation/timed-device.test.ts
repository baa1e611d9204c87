/** Timed device: takes the time of its cost model, and has no other effect. */

import { expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import type { SequenceId, Step, StepResult } from "../scheduler/core.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import { EventClock } from "./event-clock.ts";
import { deviceSpec, sampling } from "./factories.ts";
import { TimedDevice } from "./timed-device.ts";

function device(slowdown = 1) {
  const clock = new EventClock();
  const timed = new TimedDevice(
    deviceSpec(),
    clock,
    linearCost(5, 0.5),
    (ms) => slowdown * ms,
    ({ sampling: { seed }, position }) => seed[0] * 10 + position,
  );
  return { clock, timed };
}

const row = { afterIndex: 0, position: 3, banned: [], seen: null, allowed: null };
const step: Step = {
  number: 1,
  moves: [],
  chunks: [
    {
      sequence: 4 as SequenceId,
      start: 0,
      tokens: new Int32Array(9),
      pages: new Int32Array(1),
      samples: [],
      adapter: 0,
    },
    {
      sequence: 5 as SequenceId,
      start: 20,
      tokens: new Int32Array(1),
      pages: new Int32Array(2),
      samples: [{ ...row, sampling: sampling({ seed: [7, 0] }) }],
      adapter: 0,
    },
  ],
};

test("a step takes what the model says, times the slowdown, and draws for those who sample", () => {
  for (const slowdown of [1, 3]) {
    const { clock, timed } = device(slowdown);
    const results: StepResult[] = [];
    timed.start(step, (result) => results.push(result));
    expect(results).toEqual([]);
    while (clock.runNext());
    const deviceMs = 10 * slowdown;
    expect(clock.nowMs()).toBe(deviceMs);
    const sampled = [{ kind: "token", sequence: 5, token: 73, logprobs: null } as const];
    expect(results).toEqual([
      { kind: "done", sampled: [{ ...sampled[0]!, sequence: 5 as SequenceId }], deviceMs },
    ]);
    expect(timed.work).toEqual({ steps: 1, busyMs: deviceMs, promptTokens: 9 });
  }
});

test("one step at a time, and none after close; a step in flight is forgotten", () => {
  const { clock, timed } = device();
  const results: StepResult[] = [];
  timed.start(step, (result) => results.push(result));
  expect(() => timed.start(step, () => {})).toThrow(InvariantError);
  timed.close();
  while (clock.runNext());
  expect(results).toEqual([]);
  expect(() => timed.start(step, () => {})).toThrow(InvariantError);
});

test("decodes that have pages in common read these once, if the device's kernels do", () => {
  const contexts: number[] = [];
  const costs = {
    name: "told",
    tileTokens: 1,
    stepMs: ({ decodeContext }: { readonly decodeContext: number }) => {
      contexts.push(decodeContext);
      return 1;
    },
  };
  const decode = (sequence: number, pages: readonly number[]): Step["chunks"][number] => ({
    sequence: sequence as SequenceId,
    start: 40,
    tokens: new Int32Array(1),
    pages: Int32Array.from(pages),
    samples: [],
    adapter: 0,
  });
  const both: Step = { number: 1, moves: [], chunks: [decode(1, [3, 4, 5]), decode(2, [3, 4, 6])] };
  for (const sharesReads of [false, true]) {
    const clock = new EventClock();
    new TimedDevice(
      deviceSpec(),
      clock,
      costs,
      (ms) => ms,
      () => 1,
      sharesReads,
    ).start(both, () => {});
  }
  expect(contexts).toEqual([80, 32 + 8 + 8]);
});

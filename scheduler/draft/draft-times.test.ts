/** Time of a drafted token as a share of a step: known by the models' sizes first, then as measured. */

import { expect, test } from "bun:test";
import { DraftTimes } from "./draft-times.ts";

test("a draft model's share is that of its bytes, and a head's a guess, until a step was timed", () => {
  expect(new DraftTimes({ draftModel: { share: 0.3 } })).toMatchObject({ share: 0.3, passMs: 0 });
  expect(new DraftTimes({}).share).toBeLessThan(0.3);
});

test("the share converges to measured times, whatever the number of draft tokens", () => {
  const times = new DraftTimes({ draftModel: { share: 0.9 } });
  for (let step = 0; step < 100; step++) {
    const count = 1 + (step % 4);
    times.learn(count, 2 * count, 10 + 2 * count);
  }
  expect(times.share).toBeCloseTo(0.2, 4);
  expect(times.passMs).toBeCloseTo(2, 4);
});

test("a step without a measured time changes nothing", () => {
  const times = new DraftTimes({ draftModel: { share: 0.3 } });
  for (const [draftsMs, deviceMs] of [
    [0, 10],
    [10, 10],
  ] as const)
    times.learn(2, draftsMs, deviceMs);
  expect(times).toMatchObject({ share: 0.3, passMs: 0 });
});

test("a single preempted pass raises the estimates by an eighth at most; a lasting change is learned", () => {
  const times = new DraftTimes({ draftModel: { share: 0.1 } });
  times.learn(1, 1, 11);
  times.learn(1, 400, 410);
  expect(times.share).toBeCloseTo(0.1125, 6);
  expect(times.passMs).toBeCloseTo(1.125, 6);
  for (let step = 0; step < 100; step++) times.learn(1, 5, 15);
  expect(times.share).toBeCloseTo(0.5, 4);
});

import { expect, test } from "bun:test";
import { PauseWork } from "./pause-work.ts";

/** Work of pieces that take the given milliseconds each. */
function rig(...piecesMs: number[]) {
  let nowMs = 100;
  const done: number[] = [];
  function* work(): Generator<void, void> {
    for (const ms of piecesMs) {
      nowMs += ms;
      done.push(ms);
      yield;
    }
  }
  const pauses = new PauseWork(work(), () => nowMs);
  const pass = (ms: number): void => {
    nowMs += ms;
  };
  return { pauses, done, pass };
}

test("a pause has pieces of a millisecond together, and rests follow of four times their length", () => {
  const { pauses, done, pass } = rig(0.5, 0.75, 3);
  expect(pauses.run()).toBe(5);
  expect(done).toEqual([0.5, 0.75]);
  pass(4);
  expect(pauses.run()).toBe(1);
  expect(done).toEqual([0.5, 0.75]);
  pass(1);
  expect(pauses.run()).toBe(12);
  expect(done).toEqual([0.5, 0.75, 3]);
});

test("no call is asked for once the work is done, or if there is none", () => {
  const { pauses, done, pass } = rig(2);
  pass(pauses.run());
  expect(pauses.run()).toBe(Number.POSITIVE_INFINITY);
  expect(pauses.run()).toBe(Number.POSITIVE_INFINITY);
  expect(done).toEqual([2]);
  expect(new PauseWork(null).run()).toBe(Number.POSITIVE_INFINITY);
});

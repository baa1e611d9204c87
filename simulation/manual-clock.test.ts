/** Clock that a test moves. */

import { expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import { ManualClock } from "./manual-clock.ts";

test("timers run in order of time, ties in the order in which they were set", () => {
  const clock = new ManualClock();
  const ran: string[] = [];
  const note = (name: string) => () => ran.push(`${name}@${clock.nowMs()}`);
  clock.after(5, note("c"));
  clock.after(2, note("a"));
  clock.after(2, note("b"));
  const cancel = clock.after(3, note("never"));
  cancel();
  expect(clock.runAll()).toBe(3);
  expect(ran).toEqual(["a@2", "b@2", "c@5"]);
  expect(clock.runNext()).toBe(false);
});

test("advance runs what is due, also what that sets, and ends at the time asked for", () => {
  const clock = new ManualClock();
  const ran: number[] = [];
  const again = (): void => {
    ran.push(clock.nowMs());
    clock.after(4, again);
  };
  clock.after(4, again);
  clock.advance(10);
  expect(ran).toEqual([4, 8]);
  expect(clock.nowMs()).toBe(10);
  expect(() => clock.runAll(100)).toThrow(InvariantError);
});

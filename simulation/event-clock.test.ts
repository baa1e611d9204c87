/** Virtual time in order. */

import { expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import { SeededRandom } from "../base/random.ts";
import { EventClock } from "./event-clock.ts";

function runAll(clock: EventClock): void {
  while (clock.runNext());
}

test("events run in order of time, ties in the order in which they were set, whatever that was", () => {
  const clock = new EventClock();
  const random = new SeededRandom(3);
  const wanted: { atMs: number; order: number }[] = [];
  const ran: { atMs: number; order: number }[] = [];
  const set = (delayMs: number): void => {
    const event = { atMs: clock.nowMs() + delayMs, order: wanted.length };
    wanted.push(event);
    clock.after(delayMs, () => {
      expect(clock.nowMs()).toBe(event.atMs);
      ran.push(event);
      if (wanted.length < 1000) set(random.below(20));
    });
  };
  for (let i = 0; i < 500; i++) set(random.below(20));
  runAll(clock);
  expect(ran).toEqual(wanted.toSorted((a, b) => a.atMs - b.atMs || a.order - b.order));
  expect(clock.runNext()).toBe(false);
});

test("a cancelled event does not run, nor does time stop for it", () => {
  const clock = new EventClock();
  const ran: number[] = [];
  const cancel = clock.after(5, () => ran.push(clock.nowMs()));
  clock.at(7, () => ran.push(clock.nowMs()));
  cancel();
  expect(clock.runNext()).toBe(true);
  cancel();
  expect(ran).toEqual([7]);
  expect(() => clock.at(6.9, () => {})).toThrow(InvariantError);
  expect(() => clock.after(Number.NaN, () => {})).toThrow(InvariantError);
});

import { expect, test } from "bun:test";
import { LoopClock } from "./loop-clock.ts";

function rig() {
  let nowMs = 100;
  const clock = new LoopClock(() => nowMs);
  const ran: string[] = [];
  const set = (delayMs: number, name: string) => clock.after(delayMs, () => ran.push(name));
  const advance = (ms: number) => {
    nowMs += ms;
    clock.turn();
    clock.runDue();
  };
  const pass = (ms: number) => {
    nowMs += ms;
  };
  return { clock, ran, set, advance, pass };
}

test("timers run when they are due, in order of time, then of setting", () => {
  const { clock, ran, set, advance } = rig();
  set(20, "late");
  set(10, "first");
  set(10, "second");
  expect(clock.msUntilNext()).toBe(10);
  advance(9);
  expect(ran).toEqual([]);
  advance(1);
  expect(ran).toEqual(["first", "second"]);
  expect(clock.msUntilNext()).toBe(10);
  advance(50);
  expect(ran).toEqual(["first", "second", "late"]);
  expect(clock.msUntilNext()).toBe(Number.POSITIVE_INFINITY);
});

test("a cancelled timer does not run, and cancelling it again or afterwards is harmless", () => {
  const { ran, set, advance } = rig();
  const cancel = set(5, "cancelled");
  const done = set(5, "ran");
  cancel();
  cancel();
  advance(5);
  done();
  expect(ran).toEqual(["ran"]);
});

test("a timer may cancel another that is due, and one it sets waits for the next round", () => {
  const { clock, ran, set, advance } = rig();
  clock.after(1, () => {
    cancel();
    set(0, "next round");
  });
  const cancel = set(1, "cancelled");
  advance(1);
  expect(ran).toEqual([]);
  expect(clock.msUntilNext()).toBe(0);
  advance(0);
  expect(ran).toEqual(["next round"]);
});

test("a negative delay is due at once, never before the clock is asked", () => {
  const { ran, set, advance } = rig();
  set(-5, "now");
  expect(ran).toEqual([]);
  advance(0);
  expect(ran).toEqual(["now"]);
});

test("time stands still within a turn, but goes on while the loop sleeps until the next timer", () => {
  const { clock, ran, set, advance, pass } = rig();
  set(10, "timer");
  pass(10);
  expect(clock.nowMs()).toBe(100);
  clock.runDue();
  expect(ran).toEqual([]);
  expect(clock.msUntilNext()).toBe(0);
  advance(0);
  expect(clock.nowMs()).toBe(110);
  expect(ran).toEqual(["timer"]);
});

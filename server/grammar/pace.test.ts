import { expect, test } from "bun:test";
import { Pace, TimedBudget } from "./pace.ts";

/** A thread that works and sleeps on a manual clock. */
function thread() {
  let [nowMs, spentMs, sleptMs] = [0, 0, 0];
  const pace = new Pace(
    () => nowMs,
    () => spentMs,
    (ms) => {
      nowMs += ms;
      sleptMs += ms;
    },
  );
  return {
    pace,
    /** Works for `ms` in pieces of one; returns the milliseconds slept meanwhile. */
    work(ms: number): number {
      const before = sleptMs;
      for (let done = 0; done < ms; done++) {
        nowMs += 1;
        spentMs += 1;
        pace.keep();
      }
      return sleptMs - before;
    },
    /** Works while no other thread needs the core. */
    workAlone(ms: number): void {
      nowMs += ms;
      spentMs += ms;
      pace.skip();
    },
    rest(ms: number): void {
      nowMs += ms;
    },
  };
}

test("what takes little is done at once, what takes long in a tenth of the time", () => {
  const { work } = thread();
  expect(work(50)).toBe(0);
  const slept = work(1000);
  expect(slept / (1000 + slept)).toBeCloseTo(0.9, 2);
});

test("what comes all the time is done in a tenth of it, however little each takes", () => {
  const { work, rest } = thread();
  let slept = 0;
  for (let one = 0; one < 1000; one++) {
    slept += work(2);
    rest(1);
  }
  expect(2000 / (3000 + slept)).toBeCloseTo(0.1, 1);
});

test("a rest makes up for work, and no more than for fifty milliseconds", () => {
  const { work, rest } = thread();
  work(200);
  rest(200);
  expect(work(20)).toBe(0);
  rest(1_000_000);
  expect(work(50)).toBe(0);
  expect(work(50)).toBeGreaterThan(300);
});

test("work that nobody felt is not made up for", () => {
  const { work, workAlone } = thread();
  workAlone(1000);
  expect(work(50)).toBe(0);
});

test("a wait for a core is a rest, and no work", () => {
  const { work, rest } = thread();
  for (let time = 0; time < 100; time++) {
    expect(work(2)).toBe(0);
    rest(20);
  }
});

test("a compiler looks at it every few steps", () => {
  const { pace } = thread();
  let looks = 0;
  pace.keep = () => {
    looks += 1;
  };
  const budget = new TimedBudget(100_000, 500, pace);
  for (let time = 0; time < 1000; time++) budget.spend(70);
  expect(looks).toBeWithin(100, 141);
  expect(() => budget.spend(40_000)).toThrow("more than 100000 steps");
});

test("work ends at its processor time, however long others have the core", () => {
  let spentMs = 7;
  const budget = new TimedBudget(100_000, 500, null, () => spentMs);
  for (let time = 0; time < 100; time++) {
    spentMs += 5;
    budget.spend(501);
  }
  spentMs += 1;
  expect(() => budget.spend(501)).toThrow("it takes more than 500 ms of processor time to compile");
});

/** Exploit or explore, as a pure choice between costs. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import type { EngineId } from "../core.ts";
import { cheapest, chooseE2, type E2Situation } from "./e2-choice.ts";
import { floorMs, type PlacementCost, totalMs } from "./placement.ts";

function cost(engine: number, cachedTokens: number, loadMs: number): PlacementCost {
  return {
    engine: engine as EngineId,
    cachedTokens,
    loadMs,
    evictMs: 0,
    promptMs: (100 - cachedTokens) / 10,
    decodeMs: 0,
    harmMs: 0,
    delayMs: 0,
  };
}

function situation(overrides: Partial<E2Situation> = {}): E2Situation {
  return {
    promptTokens: 100,
    isWarm: () => true,
    pagesUsed: () => 0,
    ...overrides,
  };
}

test("a holder is exploited as long as that costs less than computing the prefix elsewhere", () => {
  // Elsewhere 10 ms; on the holder 2 ms for the rest of the prompt.
  const choose = (loadMs: number) => chooseE2([cost(0, 80, loadMs), cost(1, 0, 0)], situation());
  expect(choose(7.9)).toEqual({ engine: 0 as EngineId, reason: "exploit" });
  expect(choose(8.1)).toEqual({ engine: 1 as EngineId, reason: "spill" });
});

test("the delay of an engine's other sequences counts like the prompt's own time", () => {
  const elsewhere = { ...cost(1, 0, 0), delayMs: 5 };
  expect(chooseE2([cost(0, 80, 12.9), elsewhere], situation()).engine).toBe(0 as EngineId);
  expect(chooseE2([cost(0, 80, 13.1), elsewhere], situation()).engine).toBe(1 as EngineId);
});

test("a shorter match on a cheaper engine wins", () => {
  const costs = [cost(0, 80, 9), cost(1, 80, 8), cost(2, 64, 2)];
  expect(chooseE2(costs, situation())).toEqual({ engine: 2 as EngineId, reason: "exploit" });
});

test("where no more than half is cached, placements explore", () => {
  const choose = (cached: number) => chooseE2([cost(0, cached, 0), cost(1, 0, 20)], situation()).reason;
  expect(choose(50)).toBe("explore");
  expect(choose(51)).toBe("exploit");
});

test("ties: more cached, then fewer pages in use, then the lowest engine", () => {
  const pagesUsed = (engine: EngineId): number => [7, 7, 3, 3][engine]!;
  const even = [0, 1, 2, 3].map((engine) => cost(engine, 0, 10 / 3));
  expect(cheapest(even, { pagesUsed }).engine).toBe(2 as EngineId);
  // As good to the last bit but one: 16 tokens cached are 1.6 ms less to compute.
  const more = [...even.slice(0, 3), cost(3, 16, 10 / 3 + 1.6 + 1e-12)];
  expect(cheapest(more, { pagesUsed }).engine).toBe(3 as EngineId);
});

test("the choice is that of every sum of costs, but M is read only where the others are not more already", () => {
  const ms = fc.nat(20);
  const parts = fc.record({
    cachedTokens: fc.constantFrom(0, 64, 80),
    loadMs: ms,
    evictMs: ms,
    pages: fc.nat(2),
  });
  const rule = fc.property(fc.array(parts, { minLength: 1, maxLength: 12 }), (all) => {
    const read = new Set<number>();
    const costs = all.map(({ cachedTokens, loadMs, evictMs }, engine) => ({
      ...cost(engine, cachedTokens, loadMs),
      get evictMs() {
        read.add(engine);
        return evictMs;
      },
    }));
    const pagesUsed = (engine: EngineId): number => all[engine]!.pages;
    const chosen = cheapest(costs, { pagesUsed });
    const seen = new Set(read);
    const keyOf = (each: PlacementCost): number[] => [
      totalMs(each),
      -each.cachedTokens,
      pagesUsed(each.engine),
      each.engine,
    ];
    const [best] = costs.toSorted((a, b) => compare(keyOf(a), keyOf(b)));
    expect(chosen.engine).toBe(best!.engine);
    const floors = costs.map(floorMs);
    const first = floors.indexOf(Math.min(...floors));
    for (const engine of seen)
      expect(floors[engine]!).toBeLessThanOrEqual(totalMs(costs[first]!) * (1 + 1e-6));
  });
  fc.assert(rule, runs(500));
});

/** Compares by the first number that differs by more than rounding. */
function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((number, index) => Math.abs(number - b[index]!) > 1e-6);
  return at === -1 ? 0 : a[at]! - b[at]!;
}

/** Choice of the waiting sequences that move elsewhere. */

import { expect, test } from "bun:test";
import type { EngineId, SequenceId } from "../core.ts";
import type { PlacementCost } from "./placement.ts";
import { type Crowd, surplus } from "./surplus.ts";

const SLOW = 0 as EngineId;
const FREE = 1 as EngineId;

function cost(engine: EngineId, loadMs: number, promptMs: number, cachedTokens = 0): PlacementCost {
  return {
    engine,
    cachedTokens,
    loadMs,
    evictMs: 0,
    promptMs,
    decodeMs: 0,
    delayMs: 0,
    harmMs: 0,
  };
}

function crowds(waiting: readonly number[], slowMs: number, freeMs: number): Crowd[] {
  return [
    { engine: SLOW, workMs: slowMs, waiting: waiting as SequenceId[] },
    { engine: FREE, workMs: freeMs, waiting: [] },
  ];
}

test("the youngest go, until waiting costs the same here and there", () => {
  const moved = surplus(crowds([1, 2, 3, 4, 5, 6], 3000, 0), () => [cost(SLOW, 3000, 0), cost(FREE, 0, 500)]);
  // Each moves 500 ms from one side to the other: 3000 | 0, 2500 | 500, 2000 | 1000; a further move would
  // gain less than 250 ms.
  expect(moved).toEqual([6, 5, 4] as SequenceId[]);
});

test("nobody goes for a small gain, and nobody for whom too much must be computed again", () => {
  const elsewhere = (delayMs: number) => () => [cost(SLOW, 700, 0, 1600), { ...cost(FREE, 0, 100), delayMs }];
  expect(surplus(crowds([1], 700, 500), elsewhere(0))).toEqual([]);
  expect(surplus(crowds([1], 700, 0), elsewhere(0))).toEqual([1] as SequenceId[]);
  expect(surplus(crowds([1], 700, 0), elsewhere(1600))).toEqual([]);
});

test("at most eight of an engine are looked at each time", () => {
  const looked: SequenceId[] = [];
  const waiting = Array.from({ length: 100 }, (_, id) => id);
  surplus(crowds(waiting, 50_000, 0), (id) => {
    looked.push(id);
    return [cost(SLOW, 50_000, 0), cost(FREE, 0, 10)];
  });
  expect(looked).toHaveLength(8);
});

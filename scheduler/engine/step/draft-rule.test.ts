/** The number of drafted tokens that a step checks. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { objectives } from "../../objective.ts";
import { chooseDrafts, type DraftPrices, isWorthDrafting } from "./draft-rule.ts";
import type { DraftOffer } from "./step-rule.ts";

const { latency, throughput } = objectives;

/** Steps of 10 ms, with rows of 1 ms each. */
const prices: DraftPrices = {
  delayed: 1,
  streams: 1,
  aloneMs: 10,
  addedMs: (rows) => rows,
  addedMax: Number.POSITIVE_INFINITY,
  offlineAddedMax: Number.POSITIVE_INFINITY,
};

/** A draft of so many tokens, each right with a chance where those before it are. */
function offer(chance: number, tokens: number, objective = latency): DraftOffer {
  const chances: number[] = [];
  for (let i = 0; i < tokens; i++) chances.push(chance * (chances.at(-1) ?? 1));
  return { sequence: { length: 100, objective }, chances };
}

/** Counts for one stream with a draft of eight tokens. */
function countFor(chance: number, changes: Partial<DraftPrices> = {}): number {
  return chooseDrafts([offer(chance, 8)], { ...prices, ...changes }, 64)[0]!;
}

test("a draft is as long as its chances are worth its rows", () => {
  expect([0.05, 0.3, 0.6, 0.9, 1].map((chance) => countFor(chance))).toEqual([0, 1, 3, 8, 8]);
  expect(countFor(0.9, { addedMs: (rows) => 12 * rows })).toBe(0);
  expect(countFor(0.3, { addedMs: () => 0 })).toBe(8);
});

test("drafts vanish as more sequences are delayed", () => {
  const counts = [1, 2, 4, 8, 16].map((delayed) => countFor(0.8, { delayed, streams: 1 }));
  expect(counts).toEqual(counts.toSorted((a, b) => b - a));
  expect(counts.at(-1)).toBe(0);
});

test("rows that fill a tile up are taken although the first one is not worth the tile", () => {
  const tiled = { addedMs: (rows: number): number => 6 * Math.ceil(rows / 8) };
  expect(countFor(0.5, tiled)).toBe(8);
  expect(countFor(0.3, tiled)).toBe(0);
});

test("the best chances come first", () => {
  const offers = [offer(0.3, 4), offer(0.95, 4), offer(0.6, 4)];
  const many = { ...prices, delayed: 3, streams: 0, addedMs: (rows: number) => rows };
  const [low, high, middle] = chooseDrafts(offers, many, 64);
  expect(high!).toBeGreaterThan(middle!);
  expect(middle!).toBeGreaterThanOrEqual(low!);
  expect(chooseDrafts(offers, many, 1)).toEqual([0, 1, 0]);
});

test("drafts of one stream do not slow down another that has none", () => {
  const two = { ...prices, delayed: 2, streams: 2 };
  expect(chooseDrafts([offer(1, 8)], two, 64)).toEqual([0]);
  expect(chooseDrafts([offer(1, 8)], { ...two, addedMs: () => 0.1 }, 64)).toEqual([8]);
  expect(chooseDrafts([offer(1, 8), offer(1, 8)], two, 64)).toEqual([8, 8]);
});

test("no limit of the step is passed", () => {
  expect(countFor(1, { addedMax: 3.5 })).toBe(3);
  const offline = [offer(1, 8, throughput)];
  const beside = { ...prices, streams: 0, offlineAddedMax: 2 };
  expect(chooseDrafts(offline, beside, 64)).toEqual([2]);
  expect(chooseDrafts([offer(1, 8)], prices, 5)).toEqual([5]);
});

test("where drafters are not asked, no draft would have been worth its time", () => {
  const rule = fc.property(
    fc.integer({ min: 1, max: 40 }),
    fc.constantFrom(0.1, 1, 3, 9, 20),
    fc.array(fc.constantFrom(0.2, 0.6, 1), { minLength: 1, maxLength: 5 }),
    (delayed, rowMs, chances) => {
      const some = { ...prices, delayed, streams: 0, addedMs: (rows: number) => rows * rowMs };
      if (isWorthDrafting(some, 100, 64)) return;
      const counts = chooseDrafts(
        chances.map((chance) => offer(chance, 8)),
        some,
        64,
      );
      expect(Math.max(...counts)).toBe(0);
    },
  );
  fc.assert(rule, runs(200));
});

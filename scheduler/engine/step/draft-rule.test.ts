/** The number of drafted tokens that a step checks. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import type { SequenceId } from "../../core.ts";
import { objectives } from "../../objective.ts";
import { chooseDrafts, type DraftPrices, isWorthDrafting } from "./draft-rule.ts";
import type { DraftOffer } from "./step-rule.ts";

/** Steps of 10 ms, with rows of 1 ms each. */
const prices: DraftPrices = {
  decodes: 1,
  others: Number.POSITIVE_INFINITY,
  aloneMs: 10,
  addedMs: (rows) => rows,
  addedMax: Number.POSITIVE_INFINITY,
};

/** A draft of so many tokens, each right with a chance where those before it are. */
function offer(chance: number, tokens: number, advance = 1): DraftOffer {
  const chances: number[] = [];
  for (let i = 0; i < tokens; i++) chances.push(chance * (chances.at(-1) ?? 1));
  const pacing = { lastTokenMs: 0, lastChunkMs: 0, skips: 0, advance };
  return { sequence: { id: 0 as SequenceId, length: 100, objective: objectives.latency, pacing }, chances };
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

test("drafts vanish as more decodes share the step", () => {
  const counts = [1, 2, 4, 8, 16].map((decodes) => countFor(0.8, { decodes }));
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
  const many = { ...prices, decodes: 3 };
  const [low, high, middle] = chooseDrafts(offers, many, 64);
  expect(high!).toBeGreaterThan(middle!);
  expect(middle!).toBeGreaterThanOrEqual(low!);
  expect(chooseDrafts(offers, many, 1)).toEqual([0, 1, 0]);
});

test("a stream that draws one token a step waits for drafts of others for a quarter of a step at most", () => {
  const two = { ...prices, decodes: 2, others: 1 };
  expect(chooseDrafts([offer(1, 8)], two, 64)).toEqual([2]);
  expect(chooseDrafts([offer(1, 8)], { ...two, others: 1.5 }, 64)).toEqual([8]);
  expect(chooseDrafts([offer(1, 8), offer(1, 8)], { ...two, others: Number.POSITIVE_INFINITY }, 64)).toEqual([
    8, 8,
  ]);
  const late = [offer(1, 8), offer(0.1, 1)];
  expect(chooseDrafts(late, { ...two, others: Number.POSITIVE_INFINITY }, 64)[0]).toBeLessThan(8);
  expect(
    chooseDrafts([offer(1, 8), offer(0.1, 1, 2)], { ...two, others: Number.POSITIVE_INFINITY }, 64)[0],
  ).toBe(8);
});

test("where a state goes back, a copy and rows that are computed again are paid", () => {
  const counts = (rowMs: number, goesBack: boolean): number[] =>
    [0.3, 0.6, 0.9, 1].map((chance) => {
      const given = { ...offer(chance, 8), goesBack };
      return chooseDrafts([given], { ...prices, addedMs: (rows) => rowMs * rows }, 64)[0]!;
    });
  expect([counts(0.1, false), counts(0.1, true)]).toEqual([
    [3, 7, 8, 8],
    [3, 7, 8, 8],
  ]);
  expect([counts(2, false), counts(2, true)]).toEqual([
    [1, 2, 7, 8],
    [0, 2, 6, 8],
  ]);
});

test("no limit of the step is passed", () => {
  expect(countFor(1, { addedMax: 3.5 })).toBe(3);
  expect(chooseDrafts([offer(1, 8)], prices, 5)).toEqual([5]);
});

test("where drafters are not asked, no draft would have been worth its time", () => {
  const rule = fc.property(
    fc.integer({ min: 1, max: 40 }),
    fc.constantFrom(0.1, 1, 3, 9, 20),
    fc.array(fc.constantFrom(0.2, 0.6, 1), { minLength: 1, maxLength: 5 }),
    (decodes, rowMs, chances) => {
      const some = { ...prices, decodes, addedMs: (rows: number) => rows * rowMs };
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

/** The number of draft tokens that a step verifies. */

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

/** A draft of `tokens` tokens, each accepted with probability `chance` if all before it are. */
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

test("a draft is as long as its acceptance probability pays for its rows", () => {
  expect([0.05, 0.3, 0.6, 0.9, 1].map((chance) => countFor(chance))).toEqual([0, 1, 3, 8, 8]);
  expect(countFor(0.9, { addedMs: (rows) => 12 * rows })).toBe(0);
  expect(countFor(0.3, { addedMs: () => 0 })).toBe(8);
});

test("drafts get shorter as more decodes share the step, down to none", () => {
  const counts = [1, 2, 4, 8, 16].map((decodes) => countFor(0.8, { decodes }));
  expect(counts).toEqual(counts.toSorted((a, b) => b - a));
  expect(counts.at(-1)).toBe(0);
});

test("rows that fill a tile are taken although the first row alone does not pay for the tile", () => {
  const tiled = { addedMs: (rows: number): number => 6 * Math.ceil(rows / 8) };
  expect(countFor(0.5, tiled)).toBe(8);
  expect(countFor(0.3, tiled)).toBe(0);
});

test("rows with the highest acceptance probability come first", () => {
  const offers = [offer(0.3, 4), offer(0.95, 4), offer(0.6, 4)];
  const many = { ...prices, decodes: 3 };
  const [low, high, middle] = chooseDrafts(offers, many, 64);
  expect(high!).toBeGreaterThan(middle!);
  expect(middle!).toBeGreaterThanOrEqual(low!);
  expect(chooseDrafts(offers, many, 1)).toEqual([0, 1, 0]);
});

test("drafts of others raise the ITL of a stream without drafts by a quarter at most", () => {
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

test("with recurrent states the cost includes the state copy and the recomputed tokens", () => {
  const counts = (rowMs: number, rollsBack: boolean): number[] =>
    [0.3, 0.6, 0.9, 1].map((chance) => {
      const given = { ...offer(chance, 8), rollsBack };
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

test("drafts exceed neither the time nor the row limit of the step", () => {
  expect(countFor(1, { addedMax: 3.5 })).toBe(3);
  expect(chooseDrafts([offer(1, 8)], prices, 5)).toEqual([5]);
});

test("where drafters are not asked, no draft would have paid", () => {
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

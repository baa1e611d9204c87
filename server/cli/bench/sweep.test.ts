import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { kneeOf, nextRate, SHARE_MIN, type Tried } from "./sweep.ts";

/** Searches a server; `serves` gives the share of good requests at a rate. */
function search(first: number, serves: (rate: number) => number): Tried[] {
  const tried: Tried[] = [];
  for (let rate = nextRate(tried, first); rate !== null; rate = nextRate(tried, first))
    tried.push({ rate, share: serves(rate) });
  return tried;
}

test("the search finds the knee of any server within a sixth, in few points", () => {
  fc.assert(
    fc.property(
      fc.double({ min: 0.05, max: 20, noNaN: true }),
      fc.double({ min: 0.05, max: 500, noNaN: true }),
      (first, limit) => {
        fc.pre(limit > first / 32);
        const tried = search(first, (rate) => (rate <= limit ? 1 : 0.5));
        const knee = kneeOf(tried)!;
        expect(knee).toBeLessThanOrEqual(limit);
        expect(knee * 1.16).toBeGreaterThan(limit);
        expect(tried.length).toBeLessThan(24);
      },
    ),
    runs(300),
  );
});

test("a server that keeps the target at no rate has no knee, and the search ends", () => {
  const tried = search(1, () => 0);
  expect([kneeOf(tried), tried.length]).toEqual([null, 7]);
});

test("a rate above one that was not served does not count", () => {
  const tried = [
    { rate: 1, share: 1 },
    { rate: 2, share: SHARE_MIN - 0.01 },
    { rate: 4, share: 1 },
  ];
  expect(kneeOf(tried)).toBe(1);
});

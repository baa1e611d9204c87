/** Error quantile: the bound that most predictions stay below, as errors come and go. */

import { expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { ErrorQuantile } from "./error-quantile.ts";

const belief = { error: 0.1, count: 2 };

function quantileOf(errors: readonly number[]): ErrorQuantile {
  const quantile = new ErrorQuantile(0.995, belief);
  for (const error of errors) quantile.add(error);
  return quantile;
}

function spread(count: number, most: number): number[] {
  const random = new SeededRandom(1);
  return Array.from({ length: count }, () => most * random.unit());
}

test("it covers the share asked for, and not much more", () => {
  for (const [covered, least] of [
    [0.5, 0.5],
    [0.8, 0.8],
    [0.95, 0.95],
    [0.99, 0.98],
  ] as const) {
    const value = quantileOf(spread(1000, 0.5)).below(covered);
    expect(value).toBeGreaterThanOrEqual(0.5 * least * 0.9);
    expect(value).toBeLessThanOrEqual(0.5 * covered * 1.4);
  }
});

test("the prior counts until a few hundred errors outweigh it", () => {
  expect(quantileOf([]).below(0.99)).toBeWithin(0.1, 0.131);
  expect(quantileOf(new Array(20).fill(-0.2)).below(0.99)).toBeWithin(0.1, 0.131);
  expect(quantileOf(new Array(300).fill(-0.2)).below(0.99)).toBe(0.0025);
});

test("one large error does not move the quantile, a few do, and they fade", () => {
  const calm = new Array(1000).fill(0);
  expect(quantileOf([...calm, 0.4]).below(0.99)).toBe(0.0025);
  expect(quantileOf([...calm, 0.4, 0.4, 0.4]).below(0.99)).toBeWithin(0.4, 0.53);
  expect(quantileOf([...calm, 0.4, 0.4, 0.4, ...calm]).below(0.99)).toBe(0.0025);
});

test("after a reset only the prior is left", () => {
  const quantile = quantileOf(new Array(1000).fill(0));
  quantile.reset();
  expect(quantile.state).toEqual(quantileOf([]).state);
});

test("errors beyond all buckets count as the last", () => {
  expect(quantileOf(new Array(50).fill(7)).below(0.99)).toBeCloseTo(1.044, 3);
});

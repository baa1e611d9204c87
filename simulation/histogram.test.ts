/** Quantiles of many durations, within half a percent. */

import { expect, test } from "bun:test";
import { SeededRandom } from "../base/random.ts";
import { Histogram } from "./histogram.ts";

test("quantiles are within 0.5 %, mean and maximum exact, from microseconds to days", () => {
  const random = new SeededRandom(5);
  for (const scaleMs of [0.01, 1, 50, 5_000, 3e8]) {
    const values = Array.from({ length: 5000 }, () => scaleMs * (0.5 + random.unit() ** 3 * 20));
    const histogram = new Histogram();
    for (const value of values) histogram.add(value);
    values.sort((a, b) => a - b);
    const quantiles = histogram.quantiles();
    for (const [share, told] of [
      [0.5, quantiles.p50],
      [0.9, quantiles.p90],
      [0.99, quantiles.p99],
    ] as const) {
      const exact = values[Math.ceil(share * values.length) - 1]!;
      expect(Math.abs(told - exact)).toBeLessThanOrEqual(0.005 * exact + 0.001);
    }
    expect(quantiles.max).toBe(values.at(-1)!);
    const mean = values.reduce((sum, value) => sum + value, 0) / 5000;
    expect(quantiles.mean / mean).toBeCloseTo(1, 12);
    expect(histogram.countAbove(scaleMs * 100)).toBe(0);
    expect(histogram.countAbove(0)).toBe(5000);
    const above = values.filter((value) => value > scaleMs * 2).length;
    expect(Math.abs(histogram.countAbove(scaleMs * 2) - above)).toBeLessThan(40);
  }
});

test("nothing has quantiles of 0, and a single duration is all of them", () => {
  const histogram = new Histogram();
  expect(histogram.quantiles()).toEqual({ count: 0, mean: 0, p50: 0, p90: 0, p99: 0, max: 0 });
  histogram.add(0.127);
  expect(histogram.quantiles()).toEqual({
    count: 1,
    mean: 0.127,
    p50: 0.127,
    p90: 0.127,
    p99: 0.127,
    max: 0.127,
  });
});

/** Noise: the configured amount, and the same for the same seed. */

import { expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import { DeviceNoise, type Noise } from "./noise.ts";

const none: Noise = {
  deviation: 0,
  outlierShare: 0,
  outlierFactor: 1,
  flipEveryMs: null,
  flipFactor: 1,
};

/** Factors by which very short steps take longer. */
function factors(noise: Noise, count: number, seed = 1, everyMs = 10): number[] {
  const device = new DeviceNoise(noise, seed);
  const ms = 2 ** -10;
  return Array.from({ length: count }, (_, index) => device.took(ms, index * everyMs) / ms);
}

test("no noise is none", () => {
  expect(factors(none, 100)).toEqual(new Array(100).fill(1));
});

test("factors are 1 on average, deviate as was said, and never by more than 3.5 times that", () => {
  const noise = { ...none, deviation: 0.1 };
  const drawn = factors(noise, 20_000);
  const mean = drawn.reduce((sum, factor) => sum + factor, 0) / drawn.length;
  const variance = drawn.reduce((sum, factor) => sum + (factor - mean) ** 2, 0) / drawn.length;
  expect(mean).toBeCloseTo(1, 2);
  expect(Math.sqrt(variance)).toBeCloseTo(0.1, 2);
  expect(Math.max(...drawn.map((factor) => Math.abs(factor - 1)))).toBeLessThan(0.35);
});

test("outliers are as rare and as large as was said", () => {
  const drawn = factors({ ...none, outlierShare: 0.01, outlierFactor: 7 }, 20_000);
  expect(new Set(drawn)).toEqual(new Set([1, 7]));
  expect(drawn.filter((factor) => factor === 7).length).toBeWithin(150, 250);
});

test("a device is slow every other period, at times of its own", () => {
  const noise = { ...none, flipEveryMs: 1000, flipFactor: 3 };
  const drawn = factors(noise, 400);
  expect(drawn.filter((factor) => factor === 3).length).toBe(200);
  const changes = drawn.filter((factor, index) => index > 0 && factor !== drawn[index - 1]);
  expect(changes.length).toBeWithin(3, 5);
  expect(factors(noise, 400, 2)).not.toEqual(drawn);
});

test("work takes as long in one long step as in many short ones, however often the speed flips", () => {
  const noise = { ...none, flipEveryMs: 1000, flipFactor: 3 };
  const inSteps = (count: number, ms: number): number => {
    const device = new DeviceNoise(noise, 1);
    let nowMs = 300;
    for (let step = 0; step < count; step++) nowMs += device.took(ms, nowMs);
    return nowMs;
  };
  expect(inSteps(1, 6000)).toBeCloseTo(inSteps(6000, 1), 6);
  expect(inSteps(7, 1000)).toBeCloseTo(inSteps(7000, 1), 6);
  // Half of the time at a third of the speed.
  expect(inSteps(1, 60_000)).toBeWithin(300 + 89_000, 300 + 91_000);
});

test("the same seed gives the same factors", () => {
  const noise = { ...none, deviation: 0.2, outlierShare: 0.1, outlierFactor: 9 };
  expect(factors(noise, 50)).toEqual(factors(noise, 50));
  expect(factors(noise, 50)).not.toEqual(factors(noise, 50, 2));
});

test.each([{ deviation: 0.3 }, { outlierShare: 2 }, { flipFactor: 0 }, { flipEveryMs: 0 }])(
  "%j is refused",
  (wrong) => {
    expect(() => new DeviceNoise({ ...none, ...wrong }, 1)).toThrow(InvariantError);
  },
);

/** Seeded random numbers: repeatable, uniform, and split by name. */

import { expect, test } from "bun:test";
import { SeededRandom } from "./random.ts";

const draw = (random: SeededRandom, count: number): number[] =>
  Array.from({ length: count }, () => random.uint32());

test("the same seed gives the same numbers, for ever", () => {
  expect(draw(new SeededRandom(1), 4)).toMatchInlineSnapshot(`
    [
      1946203800,
      310734862,
      1254498755,
      3219884400,
    ]
  `);
  expect(draw(new SeededRandom(1), 100)).toEqual(draw(new SeededRandom(1), 100));
  expect(draw(new SeededRandom(2), 100)).not.toEqual(draw(new SeededRandom(1), 100));
});

test("a child depends on its name and the seed, not on what was drawn before", () => {
  const random = new SeededRandom(7);
  const before = draw(random.child("arrivals"), 10);
  draw(random, 5);
  expect(draw(random.child("arrivals"), 10)).toEqual(before);
  expect(draw(random.child("lengths"), 10)).not.toEqual(before);
  expect(draw(new SeededRandom(8).child("arrivals"), 10)).not.toEqual(before);
});

test("below and unit are uniform", () => {
  const random = new SeededRandom(3);
  const counts = new Array<number>(10).fill(0);
  let sum = 0;
  for (let i = 0; i < 100_000; i++) {
    counts[random.below(10)]! += 1;
    sum += random.unit();
  }
  // Ten times the standard deviation: 95 for a count of 10,000, 0.0009 for a mean of 0.5.
  for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(950);
  expect(Math.abs(sum / 100_000 - 0.5)).toBeLessThan(0.01);
});

test("every bit is set half of the time", () => {
  const random = new SeededRandom(0);
  const ones = new Array<number>(32).fill(0);
  for (const value of draw(random, 20_000)) {
    for (let bit = 0; bit < 32; bit++) ones[bit]! += (value >>> bit) & 1;
  }
  for (const count of ones) expect(Math.abs(count - 10_000)).toBeLessThan(700);
});

/** Logarithm and exponential without the machine's own functions. */

import { expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { exp, ln } from "./elementary.ts";

const random = new SeededRandom(1);
const many = Array.from({ length: 2000 }, () => random.unit());

test("ln is the logarithm, from the least of 32 bits to a million", () => {
  for (const x of [1, 2 ** -32, 0.75, 1.5, ...many, ...many.map((unit) => 1e6 * unit + 1)])
    expect(Math.abs(ln(x) - Math.log(x))).toBeLessThan(1e-15 * Math.max(1, Math.abs(Math.log(x))));
  expect(ln(1)).toBe(0);
});

test("exp is the exponential", () => {
  for (const x of [0, 1, -1, 0.35, ...many.map((unit) => 1400 * unit - 700)])
    expect(Math.abs(exp(x) / Math.exp(x) - 1)).toBeLessThan(1e-13);
  expect(exp(0)).toBe(1);
});

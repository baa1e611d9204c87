/** Expected length of answers. */

import { expect, test } from "bun:test";
import { OutputEstimate } from "./output-estimate.ts";

/** Expected tokens of an answer to a prompt with this beginning, after the given answers. */
function expected(answers: readonly number[], prefix?: number, tokensMax = 10_000): number {
  const estimate = new OutputEstimate();
  for (const tokens of answers) estimate.ended(7, tokens);
  return estimate.expect(prefix, tokensMax);
}

test("the first answers count alike, and together as much as a guess of 128 tokens that counts as four", () => {
  expect([[], [628], [628, 628, 628, 628]].map((answers) => expected(answers))).toEqual([128, 228, 378]);
});

test("after some answers a beginning is known by its own", () => {
  expect(
    [
      [600, 800],
      [600, 800, 700, 900],
    ].map((answers) => expected(answers, 7)),
  ).toEqual([319, 750]);
  expect(expected([600, 800, 700, 900], 8)).toBe(439);
});

test("of many answers the last are what counts, and none is longer than it may be", () => {
  const answers = [...Array<number>(1000).fill(100), ...Array<number>(100).fill(500)];
  expect(expected(answers)).toBeGreaterThan(490);
  expect(expected(answers, 7)).toBeGreaterThan(490);
  expect(expected(answers, 7, 50)).toBe(50);
});

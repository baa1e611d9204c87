/** The ideal that hit rates are compared with. */

import { expect, test } from "bun:test";
import { idealHitRate } from "./mooncake.ts";

const call = (promptTokens: number, ...blocks: number[]) => ({
  atMs: 0,
  promptTokens,
  outputTokens: 1,
  blocks,
});

test("the ideal finds prefixes only, forgets what was used longest ago, and the ends of prompts first", () => {
  const calls = [call(1024, 1, 2), call(1024, 1, 3), call(1024, 9, 2), call(700, 1, 3)];
  expect(idealHitRate(calls, Number.POSITIVE_INFINITY)).toBe((512 + 700) / (3 * 1024 + 700));
  // With three blocks 9 pushes out 3; 1 was used after 3 and stays.
  expect(idealHitRate(calls, 3)).toBe((512 + 512) / (3 * 1024 + 700));
  expect(idealHitRate(calls, 1)).toBe(512 / (3 * 1024 + 700));
});

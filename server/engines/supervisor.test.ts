import { expect, test } from "bun:test";
import { RestartRule } from "./supervisor.ts";

const minuteMs = 60_000;

test("an engine is started again after 1, 2 and 4 seconds, and not after a fourth loss in ten minutes", () => {
  const rule = new RestartRule();
  expect([0, 10, 20, 30, 40].map((seconds) => rule.lost(seconds * 1000))).toEqual([
    1000,
    2000,
    4000,
    null,
    null,
  ]);
});

test("losses that are ten minutes old do not count", () => {
  const rule = new RestartRule();
  expect([0, 4, 8].map((minutes) => rule.lost(minutes * minuteMs))).toEqual([1000, 2000, 4000]);
  expect(rule.lost(10 * minuteMs)).toBe(4000);
  expect(rule.lost(13 * minuteMs)).toBeNull();
});

import { expect, test } from "bun:test";
import { call, output, text } from "../../scheduler/program/factories.ts";
import type { CallSpec } from "../../scheduler/program/spec.ts";
import { CallTimes } from "./call-times.ts";

/** A call that reads 4,000 characters and writes so many tokens. */
function sized(tokensMax: number | null): CallSpec {
  const parts = [text("x".repeat(4000)), { ...output("answer"), tokensMax }];
  return { kind: "call", name: "sized", prompt: { kind: "text", parts } };
}

/** 1,000 tokens read at 2 ms, 100 drawn at 5 ms. */
const ended = {
  times: { readyMs: 0, placedMs: 0, startedMs: 0, firstMs: 2000, endedMs: 2495 },
  tokens: { prompt: 1200, found: 200, warmed: 0, output: 100 },
};

test("what calls took is what the next ones are expected to take", () => {
  const times = new CallTimes();
  for (let count = 0; count < 400; count++) times.note(ended);
  expect(times.expectedMs(sized(100))).toBeCloseTo(2000 + 500, 0);
  expect(times.expectedMs(sized(10))).toBeCloseTo(2000 + 50, 0);
  expect(times.expectedMs(sized(null))).toBeCloseTo(2000 + 500, 0);
  expect(times.expectedMs(sized(1_000_000))).toBeCloseTo(2000 + 2000, 0); // a limit is no length
});

test("one call is enough to know a device by, and few tokens tell nothing of reading", () => {
  const times = new CallTimes();
  times.note(ended);
  expect(times.readMs(4000)).toBeCloseTo(2000, 0);
  times.note({ ...ended, tokens: { ...ended.tokens, found: 1190 } });
  expect(times.readMs(4000)).toBeCloseTo(2000, 0);
});

test("a call that never drew teaches nothing", () => {
  const times = new CallTimes();
  const before = times.expectedMs(call("a", ["x"], ["y"]));
  times.note({ ...ended, times: { ...ended.times, firstMs: null } });
  expect(times.expectedMs(call("a", ["x"], ["y"]))).toBe(before);
});

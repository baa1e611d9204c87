/**
 * Expected times of calls: from their texts, from answers of calls with the same beginning, and from the
 * device's cost model.
 */
import { expect, test } from "bun:test";
import { linearCost } from "../cost/linear.ts";
import { CallEstimates } from "./call-estimates.ts";
import { output, text } from "./factories.ts";
import type { CallSpec } from "./spec.ts";

/** Makes a call that reads 4,000 characters and writes at most `tokensMax` tokens. */
function sized(beginning: string, tokensMax: number | null): CallSpec {
  const parts = [text(beginning.padEnd(4000, "x")), { ...output("answer"), tokensMax }];
  return { kind: "call", name: "sized", prompt: { kind: "text", parts } };
}

test("a call takes its prompt and its answer, which is as long as those of calls that began alike", () => {
  const estimates = new CallEstimates(() => linearCost(10, 1));
  for (let count = 0; count < 50; count++) {
    estimates.ended(sized("short", null), 20);
    estimates.ended(sized("long", null), 200);
  }
  const promptMs = 10 + 1001;
  const expected = ["short", "long"].map((name) => estimates.expectedMs(sized(name, null)));
  expect(expected[0]! - promptMs).toBeCloseTo(20 * 11, -2);
  expect(expected[1]! - promptMs).toBeCloseTo(200 * 11, -2);
  // A token limit caps the expectation; it does not set it.
  expect(estimates.expectedMs(sized("long", 10)) - promptMs).toBeCloseTo(10 * 11, -2);
  expect(estimates.expectedMs(sized("long", 100_000))).toBe(expected[1]!);
});

test("what is believed of the device counts when it is asked", () => {
  let tokenMs = 1;
  const estimates = new CallEstimates(() => linearCost(10, tokenMs));
  expect(estimates.readMs(4000)).toBe(1000);
  tokenMs = 3;
  expect(estimates.readMs(4000)).toBe(3000);
});

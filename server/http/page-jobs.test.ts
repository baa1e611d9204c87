/** Pace of a batch. */
import { expect, test } from "bun:test";
import { type BatchFacts, Paces, timeLeft } from "../web/tasks/batch.ts";

function batch(completed: number, tokens: number, more: Partial<BatchFacts> = {}): BatchFacts {
  return {
    id: "batch_1",
    endpoint: "/v1/completions",
    status: "in_progress",
    created_at: 990,
    in_progress_at: 1000,
    completed_at: null,
    request_counts: { total: 1000, completed, failed: 0 },
    usage: { total_tokens: tokens, input_tokens: 0, input_tokens_details: { cached_tokens: 0 } },
    paused_by: null,
    ...more,
  };
}

test("is that since its begin first, and then that of the last minute", () => {
  const paces = new Paces();
  expect(paces.of(batch(0, 0), 1_001_000)).toBeNull();
  expect(paces.of(batch(100, 5000), 1_100_000)).toEqual({
    linesPerSecond: 1,
    tokensPerSecond: 50,
    secondsLeft: 900,
  });
  expect(paces.of(batch(300, 15_000), 1_150_000)).toEqual({
    linesPerSecond: 4,
    tokensPerSecond: 200,
    secondsLeft: 175,
  });
  expect(paces.of(batch(400, 20_000), 1_260_000)!.linesPerSecond).toBeCloseTo(400 / 260);
  expect(paces.of(batch(1000, 50_000, { status: "completed" }), 1_300_000)).toBeNull();
});

test("time left has a unit", () => {
  expect([40, 720, 11_520].map(timeLeft)).toEqual(["40 s", "12 min", "3.2 h"]);
});

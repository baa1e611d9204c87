/** Quantiles of the observations between the last reads of a histogram. */
import { expect, test } from "bun:test";
import { AnswerHistogram } from "./answer-histogram.ts";
import { RecentQuantiles } from "./recent-quantiles.ts";

test("quantiles are those of the observations since some looks ago, over all histograms", () => {
  const bounds = [0.01, 0.02, 0.04];
  const [a, b] = [new AnswerHistogram("a", "", {}, [], bounds), new AnswerHistogram("b", "", {}, [], bounds)];
  const recent = new RecentQuantiles(2);
  a.observe(0.03, "0");
  expect(recent.look([a, b])).toBeNull();
  for (let i = 0; i < 5; i++) {
    a.observe(0.015, "0");
    b.observe(0.015, "0");
  }
  expect(recent.look([a, b])).toEqual({ count: 10, p50Ms: 15, p90Ms: 19, p99Ms: 19.9 });
  b.observe(9, "0");
  expect(recent.look([a, b])!.count).toBe(11);
  expect(recent.look([a, b])).toEqual({ count: 1, p50Ms: 40, p90Ms: 40, p99Ms: 40 });
  expect(recent.look([])).toBeNull();
});

/** Steps of an engine as columns of pixels. */
import { expect, test } from "bun:test";
import { columnsOf, EVICTED, PREEMPTED } from "../web/live/columns.ts";
import type { StepBar } from "./state-events.ts";

/** Step that ends at a time, with tokens of decodes and prompts. */
function step(endMs: number, ms: number, decodes: number, prompt = 0, evicted = 0, preempted = 0): StepBar {
  return [endMs, ms, decodes, prompt, 0, 0, evicted, preempted, 0];
}

test("a column shows the longest of its steps, and the ticks of all", () => {
  const bars = [step(10, 10, 1), step(20, 20, 1, 3, 2), step(25, 5, 4, 0, 0, 1), step(95, 1, 2)];
  const { ms, shares, ticks } = columnsOf(bars, 10, 100, 100); // ten milliseconds a column
  expect([...ms]).toEqual([20, 20, 5, 0, 0, 0, 0, 0, 0, 1]);
  expect([...ticks.slice(0, 3)]).toEqual([EVICTED, EVICTED, PREEMPTED]);
  expect([...shares.slice(0, 4)]).toEqual([0.25, 0.25, 1, 1]);
});

test("wide steps leave a column between them, and none is drawn outside", () => {
  const { ms } = columnsOf([step(3, 8, 1), step(50, 40, 1), step(100, 50, 1)], 100, 100, 100);
  const drawn = [...ms].map((one) => (one > 0 ? "#" : ".")).join("");
  expect(drawn).toBe(`##........${"#".repeat(39)}.${"#".repeat(49)}.`);
});

test("a hundred thousand steps are as many columns as there is room for", () => {
  const bars = Array.from({ length: 100_000 }, (_, at) => step(at / 10, 0.05 + (at % 10) / 100, 1));
  const { ms } = columnsOf(bars, 500, 10_000, 10_000);
  expect(ms).toHaveLength(500);
  expect(ms.every((one) => Math.abs(one - 0.14) < 1e-6)).toBe(true);
});

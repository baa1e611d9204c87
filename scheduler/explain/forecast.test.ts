import { expect, test } from "bun:test";
import { linearCost } from "../cost/linear.ts";
import { Calibration } from "./calibration.ts";
import { type EngineOutlook, forecastAll, type SeenSequence } from "./forecast.ts";

const sequence = (id: number, changes: Partial<SeenSequence>): SeenSequence => ({
  ...{ id, state: "waiting", precedence: 0, left: 100, context: 100, answer: 10, waitedMs: 0 },
  ...changes,
});

const outlook = (
  sequences: readonly SeenSequence[],
  changes: Partial<EngineOutlook> = {},
): EngineOutlook => ({
  ...{ sequences, costs: linearCost(10, 0.1), stepMs: 100, stepTokensMax: 1000, sequencesMax: 64 },
  ...{ pagesAvailable: 1000, pageTokens: 16, lastStepMs: 0, ...changes },
});

test("alone, a prompt takes its step, and its answer its decodes", () => {
  expect(forecastAll(outlook([sequence(1, {})])).get(1)).toEqual({
    position: 0,
    firstMs: 20,
    endMs: 20 + 9 * 10.1,
  });
});

test("without a slot, one waits for an answer to end", () => {
  const running = sequence(1, { state: "answer", answer: 50 });
  const one = forecastAll(outlook([running, sequence(2, {})], { sequencesMax: 1 })).get(2)!;
  expect(one.firstMs).toBeCloseTo(50 * 10.1 + 20, 6);
});

test("without pages, one waits for an answer to give its own back", () => {
  const running = sequence(1, { state: "answer", answer: 50, context: 160 });
  const one = forecastAll(outlook([running, sequence(2, {})], { pagesAvailable: 4 })).get(2)!;
  expect(one.firstMs).toBeCloseTo(50 * 10.1 + 20, 6);
});

test("places follow service classes, and then waits over costs", () => {
  const all = [
    sequence(1, { precedence: 2, waitedMs: 5000 }),
    sequence(2, { left: 4000, context: 4000 }),
    sequence(3, { left: 50 }),
  ];
  const forecasts = forecastAll(outlook(all));
  expect([1, 2, 3].map((id) => forecasts.get(id)!.position)).toEqual([2, 1, 0]);
});

test("a queue that is longer than a look ahead still has times, later for later places", () => {
  const many = Array.from({ length: 3000 }, (_, id) =>
    sequence(id, { left: 2000, context: 2000, answer: 200 }),
  );
  const forecasts = forecastAll(outlook(many, { sequencesMax: 8 }));
  expect(forecasts.size).toBe(3000);
  expect(forecasts.get(2999)!.firstMs).toBeGreaterThan(forecasts.get(1500)!.firstMs);
});

test("ranges hold eight of ten outcomes of a load that stays of a kind", () => {
  const calibration = new Calibration();
  let inside = 0;
  // Outcomes are 0.5 to 2.5 times the prediction, spread evenly by a golden ratio.
  for (let turn = 0; turn < 2000; turn++) {
    const { lowMs, highMs } = calibration.range(100);
    const ms = 100 * (0.5 + 2 * ((turn * 0.618_033_988_749_895) % 1));
    if (turn >= 200 && ms >= lowMs && ms <= highMs) inside += 1;
    calibration.observe(100, ms);
  }
  expect(inside / 1800).toBeGreaterThan(0.75);
  expect(inside / 1800).toBeLessThan(0.85);
});

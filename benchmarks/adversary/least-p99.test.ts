/** The bound holds for every policy, and is what it is where it can be calculated. */

import { expect, test } from "bun:test";
import { decodeStepMs } from "../../scheduler/cost/cost-model.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { devices } from "../papers/bench.ts";
import { CONTEXT_MAX, drawConfiguration } from "./configuration.ts";
import { leastP99Ms } from "./least-p99.ts";
import { own, rivals } from "./systems.ts";
import { arrivalsOf, runPolicy } from "./trial.ts";

test("calls that come at once take as long as their answers together, spread evenly", () => {
  const engine = linearCost(10, 1);
  const arrivalsMs = Array.from({ length: 80 }, () => 0);
  const boundMs = leastP99Ms({ arrivalsMs, contextTokens: 100, answerTokens: 51 }, { engine, count: 4 });
  const tookMs = 50 * decodeStepMs(engine, 20, 100);
  expect(boundMs).toBeLessThanOrEqual(tookMs);
  expect(boundMs).toBeGreaterThan(tookMs - 101);
});

test("no policy goes below it", () => {
  const drawn = drawConfiguration(2, 3);
  const one = (tokens: number) => ({ least: tokens, most: tokens });
  const load = {
    ...drawn.load,
    ...{ calls: 200, callsPerSecond: 40, variation: 5, documents: 2, documentTokens: one(500), sections: 0 },
    ...{ rootTokens: 0, suffixTokens: one(50), outputTokens: one(60), tokensMax: null },
  };
  const configuration = { ...drawn, engines: 4, pages: 8000, load, noise: null };
  const models = devices(drawn.device, 4, { spec: { contextMax: CONTEXT_MAX } });
  const arrivals = arrivalsOf(configuration);
  const arrivalsMs = arrivals.map(({ atMs }) => atMs);
  const calls = { arrivalsMs, contextTokens: 550, answerTokens: 60 };
  const boundMs = leastP99Ms(calls, { engine: models[0]!.profile, count: 4 });
  expect(boundMs).toBeGreaterThan(0);
  // Reports tell percentiles to 2 %.
  for (const policy of [own, ...rivals]) {
    expect(runPolicy(configuration, arrivals, policy).latencyP99Ms).toBeGreaterThan(0.98 * boundMs);
  }
});

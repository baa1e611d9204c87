/** A cost model that learns what steps really take. */

import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../random.ts";
import type { CostModel, StepShape } from "./cost-model.ts";
import { linearCost } from "./linear.ts";
import { OnlineCostModel } from "./online.ts";
import { deviceModels, openProfile } from "./profiles.ts";

function shapes(count: number, seed: number): StepShape[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => {
    const decodes = random.below(64);
    const hasPrompt = decodes === 0 || random.below(2) === 0;
    const prompts = hasPrompt ? [{ tokens: 1 + random.below(512), context: random.below(4000) }] : [];
    return { prompts, decodes, decodeContext: decodes * random.below(2000) };
  });
}

/** 90th percentile of the relative error. */
function errorOf(model: CostModel, truth: (shape: StepShape) => number): number {
  const errors = shapes(500, 99).map((shape) => Math.abs(model.stepMs(shape) / truth(shape) - 1));
  return errors.sort((a, b) => a - b)[449]!;
}

describe("a wrong belief is corrected", () => {
  const { profile } = deviceModels.a100;
  const cases: Readonly<Record<string, { base: CostModel; truth: (shape: StepShape) => number }>> = {
    "a device three times as slow": { base: profile, truth: (shape) => 3 * profile.stepMs(shape) },
    "a device half as fast again": { base: profile, truth: (shape) => profile.stepMs(shape) / 1.5 },
    "five milliseconds more a step": { base: profile, truth: (shape) => profile.stepMs(shape) + 5 },
    "attention that was left out": {
      base: linearCost(10, 0.07),
      truth: ({ prompts, decodes, decodeContext }) => {
        let ms = 10 + 0.07 * decodes + 1e-4 * decodeContext;
        for (const { tokens, context } of prompts)
          ms += 0.07 * tokens + 4e-6 * tokens * (context + tokens / 2);
        return ms;
      },
    },
  };
  for (const [name, { base, truth }] of Object.entries(cases)) {
    test(`${name}: within 3 % after 300 steps`, () => {
      const model = new OnlineCostModel(base);
      const before = errorOf(model, truth);
      for (const shape of shapes(300, 1)) model.observe(shape, truth(shape));
      expect(before).toBeGreaterThan(0.08);
      expect(errorOf(model, truth)).toBeLessThan(0.03);
    });
  }
});

test("it stays right about a device that is as it was believed to be", () => {
  const { profile } = deviceModels.a6000;
  const model = new OnlineCostModel(profile);
  for (const shape of shapes(2000, 2)) model.observe(shape, profile.stepMs(shape));
  expect(errorOf(model, (shape) => profile.stepMs(shape))).toBeLessThan(0.002);
  expect(model.margin).toBeLessThan(0.01);
});

test("whatever was observed, more work is never predicted to take less time", () => {
  const random = new SeededRandom(3);
  const model = new OnlineCostModel(linearCost(5, 0.02));
  for (const shape of shapes(400, 4)) {
    model.observe(shape, 1 + random.unit() * 60);
    const { prompts, decodes, decodeContext } = shape;
    const ms = model.stepMs(shape);
    expect(ms).toBeGreaterThan(0);
    expect(model.stepMs({ prompts, decodes: decodes + 1, decodeContext })).toBeGreaterThanOrEqual(ms);
    expect(model.stepMs({ prompts, decodes, decodeContext: decodeContext + 50 })).toBeGreaterThanOrEqual(ms);
    const longer = [...prompts, { tokens: 20, context: 0 }];
    expect(model.stepMs({ prompts: longer, decodes, decodeContext })).toBeGreaterThanOrEqual(ms);
  }
});

test("the margin covers 99 % of steps, of noisy ones too", () => {
  const random = new SeededRandom(6);
  const model = new OnlineCostModel(linearCost(10, 0.05));
  const truth = linearCost(10, 0.05);
  let above = 0;
  for (const [index, shape] of shapes(6000, 7).entries()) {
    const ms = truth.stepMs(shape) * (0.9 + 0.2 * random.unit());
    if (index >= 2000 && ms > model.stepMs(shape) * (1 + model.margin)) above += 1;
    model.observe(shape, ms);
  }
  expect(above / 4000).toBeLessThan(0.02);
  // Nor is it far too wide: a step takes 10 % more at most.
  expect(model.margin).toBeLessThan(0.14);
});

test.each([
  ["three times as slow", 3],
  ["twenty times as slow", 20],
  ["twice as fast", 0.5],
])("a machine that is %s from now on is believed after a dozen steps", (_, factor) => {
  const { profile } = deviceModels.a6000;
  const model = new OnlineCostModel(profile);
  for (const shape of shapes(1000, 10)) model.observe(shape, profile.stepMs(shape));
  for (const shape of shapes(12, 11)) model.observe(shape, factor * profile.stepMs(shape));
  expect(errorOf(model, (shape) => factor * profile.stepMs(shape))).toBeLessThan(0.05);
});

test("a machine that slept is not a slow step", () => {
  const model = new OnlineCostModel(linearCost(10, 0.05));
  const shape: StepShape = { prompts: [], decodes: 4, decodeContext: 100 };
  for (let i = 0; i < 10; i++) model.observe(shape, 10.2);
  const before = model.stepMs(shape);
  model.observe(shape, 30_000);
  expect(model.stepMs(shape)).toBe(before);
});

test.each([linearCost(5, 0.02, 16), openProfile("a6000", { overheadMs: 2 }).profile])(
  "what was learnt crosses as plain data, and learning goes on alike",
  (base) => {
    const truth = linearCost(7, 0.1);
    const model = new OnlineCostModel(base);
    for (const shape of shapes(50, 8)) model.observe(shape, truth.stepMs(shape));
    const copies = [OnlineCostModel.from(structuredClone(model.state())), model.copy()];
    for (const shape of shapes(50, 9)) {
      for (const each of [model, ...copies]) each.observe(shape, truth.stepMs(shape));
      for (const copy of copies) expect(copy.stepMs(shape)).toBe(model.stepMs(shape));
    }
    for (const copy of copies) {
      expect(copy.state()).toEqual(model.state());
      expect(copy.tileTokens).toBe(base.tileTokens);
    }
  },
);

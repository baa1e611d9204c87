/** Online cost model: how fast it learns real step times, how exactly, and its bounds. */

import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { DeviceNoise, type Noise, noises } from "../../simulation/noise.ts";
import type { CostModel, PartedCostModel, StepShape } from "./cost-model.ts";
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

/** Steps with decodes only. */
function decodes(count: number, seed: number): StepShape[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => {
    const count = 1 + random.below(8);
    return { prompts: [], decodes: count, decodeContext: count * (100 + random.below(400)) };
  });
}

function promptOf(tokens: number, context = 0): StepShape {
  return { prompts: [{ tokens, context }], decodes: 0, decodeContext: 0 };
}

/** 90th percentile of the relative error. */
function errorOf(model: CostModel, truth: (shape: StepShape) => number): number {
  const errors = shapes(500, 99).map((shape) => Math.abs(model.stepMs(shape) / truth(shape) - 1));
  return errors.sort((a, b) => a - b)[449]!;
}

/** A small model on a CPU. */
const small = linearCost(20, 1, 16, { sequenceMs: 0.5, pairMs: 4e-4, contextMs: 4e-4 });

describe("a wrong prior is corrected", () => {
  const { profile } = deviceModels.a100;
  const cases: Readonly<Record<string, { prior: PartedCostModel; truth: (shape: StepShape) => number }>> = {
    "a device three times as slow": { prior: profile, truth: (shape) => 3 * profile.stepMs(shape) },
    "a device half as fast again": { prior: profile, truth: (shape) => profile.stepMs(shape) / 1.5 },
    "a device a hundred times as slow": { prior: profile, truth: (shape) => 100 * profile.stepMs(shape) },
    "five milliseconds more a step": { prior: profile, truth: (shape) => profile.stepMs(shape) + 5 },
    "attention that takes a fifth": {
      prior: small,
      truth: (shape) =>
        linearCost(20, 1, 16, { sequenceMs: 0.5, pairMs: 8e-5, contextMs: 8e-5 }).stepMs(shape),
    },
    "tokens and attention that take five times as much": {
      prior: small,
      truth: (shape) =>
        linearCost(20, 5, 16, { sequenceMs: 0.5, pairMs: 2e-3, contextMs: 2e-3 }).stepMs(shape),
    },
  };
  for (const [name, { prior, truth }] of Object.entries(cases)) {
    test(`${name}: within 3 % after 300 steps`, () => {
      const model = new OnlineCostModel(prior);
      const before = errorOf(model, truth);
      for (const shape of shapes(300, 1)) model.observe(shape, truth(shape));
      expect(before).toBeGreaterThan(0.08);
      expect(errorOf(model, truth)).toBeLessThan(0.03);
    });
  }
});

test("first tokens that were believed to take half of their time are found out beside decodes, while prompts stay right", () => {
  const deviceOf = (firstMs: number): PartedCostModel =>
    linearCost(13, 0.5, 16, undefined, [{ tokens: 16, tokenMs: firstMs }]);
  const [prior, truth] = [deviceOf(0.2), deviceOf(0.4)];
  const model = new OnlineCostModel(prior);
  const decode = { prompts: [], decodes: 1, decodeContext: 400 };
  const pieceMs = (of: CostModel): number =>
    of.stepMs({ ...decode, prompts: [{ tokens: 15, context: 100 }] }) - of.stepMs(decode);
  expect(pieceMs(model)).toBeCloseTo(3, 6);
  for (let call = 0; call < 6; call++) {
    for (const shape of [promptOf(388), promptOf(40)]) model.observe(shape, truth.stepMs(shape));
    for (let step = 0; step < 24; step++) {
      const shape = step % 3 === 0 ? decode : { ...decode, prompts: [{ tokens: 15, context: 15 * step }] };
      model.observe(shape, truth.stepMs(shape));
    }
  }
  expect(pieceMs(model)).toBeWithin(0.75 * pieceMs(truth), 1.1 * pieceMs(truth));
  expect(model.stepMs(promptOf(388)) / truth.stepMs(promptOf(388))).toBeWithin(0.95, 1.05);
});

test("it stays right about a device that is as it was believed to be", () => {
  const { profile } = deviceModels.a6000;
  const model = new OnlineCostModel(profile);
  for (const shape of shapes(2000, 2)) model.observe(shape, profile.stepMs(shape));
  expect(errorOf(model, (shape) => profile.stepMs(shape))).toBeLessThan(0.002);
  expect(model.margin).toBeLessThan(0.01);
});

describe("noise", () => {
  const none: Noise = { deviation: 0, outlierShare: 0, outlierFactor: 1, flipEveryMs: null, flipFactor: 1 };
  /** Model after `steps` noisy steps of a device. */
  function learnt(noise: Noise, steps: number, observed = shapes(steps, 7)): OnlineCostModel {
    const device = new DeviceNoise(noise, 3);
    const model = new OnlineCostModel(small);
    let nowMs = 0;
    for (const shape of observed) {
      const ms = device.took(small.stepMs(shape), nowMs);
      model.observe(shape, ms);
      nowMs += ms;
    }
    return model;
  }

  test.each([
    [0.05, 0.05],
    [0.15, 0.12],
    [0.25, 0.2],
  ])("of deviation %p leaves an error of less than %p", (deviation, error) => {
    expect(errorOf(learnt({ ...none, deviation }, 2000), (shape) => small.stepMs(shape))).toBeLessThan(error);
  });

  test("in which one of fifty steps takes ten times as long leaves the prediction where it is", () => {
    const noise = { ...none, outlierShare: 0.02, outlierFactor: 10 };
    expect(errorOf(learnt(noise, 2000), (shape) => small.stepMs(shape))).toBeLessThan(0.03);
  });

  test("a machine whose speed flips by three every few seconds is neither fast nor slow but followed", () => {
    const device = new DeviceNoise({ ...none, flipEveryMs: 4000, flipFactor: 3 }, 5);
    const model = new OnlineCostModel(small);
    let nowMs = 0;
    let off = 0;
    const all = [...shapes(3000, 8), ...decodes(3000, 9), ...shapes(3000, 10)];
    for (const [index, shape] of all.entries()) {
      const ms = device.took(small.stepMs(shape), nowMs);
      const ratio = model.stepMs(shape) / ms;
      // Covers the change itself, and the trace in the weights of steps before the model believed it.
      expect(ratio).toBeWithin(1 / 5, 5);
      if (index > 500 && (ratio > 1.25 || ratio < 0.8)) off += 1;
      model.observe(shape, ms);
      nowMs += ms;
    }
    // Each change spoils eight steps, and comes about every thirty prompt steps of this device.
    expect(off / all.length).toBeLessThan(0.3);
  });

  test("the margin covers 99 % of steps, and is not far too wide", () => {
    const random = new SeededRandom(6);
    const truth = linearCost(10, 0.05);
    const model = new OnlineCostModel(truth);
    let above = 0;
    for (const [index, shape] of shapes(6000, 7).entries()) {
      const ms = truth.stepMs(shape) * (0.9 + 0.2 * random.unit());
      if (index >= 2000 && ms > model.stepMs(shape) * (1 + model.margin)) above += 1;
      model.observe(shape, ms);
    }
    expect(above / 4000).toBeLessThan(0.02);
    // A step takes 10 % more at most.
    expect(model.margin).toBeLessThan(0.19);
  });

  test("rough noise leaves a margin that leaves room", () => {
    expect(learnt({ ...noises.rough, flipEveryMs: null }, 3000).margin).toBeLessThan(0.75);
  });
});

describe("another speed", () => {
  test.each([
    ["three times as slow", 3],
    ["twenty times as slow", 20],
    ["twice as fast", 0.5],
  ])("a machine that is %s from now on is believed after eight steps", (_, factor) => {
    const { profile } = deviceModels.a6000;
    const model = new OnlineCostModel(profile);
    for (const shape of shapes(1000, 10)) model.observe(shape, profile.stepMs(shape));
    for (const shape of shapes(8, 11)) model.observe(shape, factor * profile.stepMs(shape));
    expect(errorOf(model, (shape) => factor * profile.stepMs(shape))).toBeLessThan(0.1);
    for (const shape of shapes(100, 12)) model.observe(shape, factor * profile.stepMs(shape));
    expect(errorOf(model, (shape) => factor * profile.stepMs(shape))).toBeLessThan(0.02);
  });

  test("the errors of the old speed are forgotten with it", () => {
    const random = new SeededRandom(13);
    const model = new OnlineCostModel(small);
    for (const shape of decodes(500, 14))
      model.observe(shape, small.stepMs(shape) * (0.7 + 0.6 * random.unit()));
    expect(model.margin).toBeGreaterThan(0.25);
    for (const shape of decodes(8, 15)) model.observe(shape, 4 * small.stepMs(shape));
    expect(model.margin).toBeLessThan(0.14);
  });

  test("a process that was stopped for half a minute is not a slow step", () => {
    const model = new OnlineCostModel(small);
    for (const shape of [...shapes(300, 16), ...decodes(300, 17)]) model.observe(shape, small.stepMs(shape));
    const { margin } = model;
    for (let stop = 0; stop < 3; stop++) model.observe(decodes(1, 18)[0]!, 30_000);
    expect(errorOf(model, (shape) => small.stepMs(shape))).toBeLessThan(0.02);
    expect(model.margin).toBe(margin);
  });
});

describe("steady(): the slowdown reported to the router", () => {
  /** Half a millisecond a step. */
  const shape = decodes(1, 33)[0]!;
  const tiny = linearCost(0.4, 0.02, 16, { sequenceMs: 0.01, pairMs: 2e-5, contextMs: 1e-5 });

  test("of short steps it is the average over time, at whatever step it is read", () => {
    const model = new OnlineCostModel(tiny);
    const asked = Array.from({ length: 4000 }, (_, index) => {
      model.observe(shape, tiny.stepMs(shape) * (index % 50 < 20 ? 10 : 1));
      return [model, model.steady()].map((told) => told.stepMs(shape) / tiny.stepMs(shape));
    }).slice(1000);
    const spread = (values: readonly number[]): number => Math.max(...values) / Math.min(...values);
    expect(spread(asked.map(([now]) => now!))).toBeGreaterThan(9);
    expect(spread(asked.map(([, steady]) => steady!))).toBeLessThan(3);
  });

  /**
   * Runs 20 ms steps for `seconds`; returns the end of each in seconds, the reported slowdown, and the
   * current one.
   */
  function told(seconds: number, slowdownAt: (second: number) => number) {
    const model = new OnlineCostModel(linearCost(20, 1));
    const aloneMs = linearCost(20, 1).stepMs(shape);
    const all: { readonly second: number; readonly slowdown: number; readonly now: number }[] = [];
    for (let ms = 0; ms < 1000 * seconds; ) {
      const tookMs = aloneMs * slowdownAt(ms / 1000);
      model.observe(shape, tookMs);
      ms += tookMs;
      const [slowdown, now] = [model.steady(), model].map((one) => one.stepMs(shape) / aloneMs);
      all.push({ second: ms / 1000, slowdown: slowdown!, now: now! });
    }
    return (from: number, to: number) => all.filter(({ second }) => second >= from && second < to);
  }
  const flips = (second: number): number => (Math.floor(second / 4) % 2 === 0 ? 1 : 3);

  test("a lasting change of an even machine's speed is followed quickly", () => {
    const between = told(60, (second) => (second < 20 ? 1 : 3));
    for (const { slowdown } of between(10, 20)) expect(slowdown).toBeWithin(0.99, 1.01);
    for (const { slowdown } of between(21, 22)) expect(slowdown).toBeGreaterThan(2.2);
    for (const { slowdown } of between(22, 60)) expect(slowdown).toBeGreaterThan(1.5);
    for (const { slowdown } of between(50, 60)) expect(slowdown).toBeWithin(2.8, 3.01);
  });

  test("a machine whose speed flips every few seconds is reported at its average", () => {
    const flipping = told(80, flips)(40, 80);
    for (const { slowdown } of flipping) expect(slowdown).toBeWithin(1.4, 2.6);
    expect(Math.min(...flipping.map(({ now }) => now))).toBeLessThan(1.01);
    expect(Math.max(...flipping.map(({ now }) => now))).toBeGreaterThan(2.99);
  });

  test("a stuck machine is reported as slow, however much its speed jittered before", () => {
    const between = told(60, (second) => (second < 40 ? flips(second) : 60));
    for (const { slowdown } of between(51, 60)) expect(slowdown).toBeGreaterThan(20);
  });
});

describe("what no step shows for long", () => {
  /** Drift, after an hour of such steps, of the predicted prompt cost and the decode cost. */
  function afterDecodes(speedOf: (index: number, random: SeededRandom) => number): number[] {
    const random = new SeededRandom(20);
    const model = new OnlineCostModel(small);
    for (const shape of shapes(500, 21)) model.observe(shape, small.stepMs(shape));
    const [prompt, decode] = [promptOf(256), decodes(1, 22)[0]!];
    const alike = small.stepMs(prompt) / small.stepMs(decode);
    return decodes(30_000, 23).flatMap((shape, index) => {
      model.observe(shape, small.stepMs(shape) * speedOf(index, random));
      return index % 1000 === 0 ? [model.stepMs(prompt) / model.stepMs(decode) / alike] : [];
    });
  }

  test.each<[string, (index: number, random: SeededRandom) => number]>([
    ["that is slow a tenth of the time", (index) => (index % 400 < 40 ? 1.6 : 1)],
    ["whose speed flips by three", (index) => (Math.floor(index / 200) % 2 === 0 ? 1 : 3)],
    ["that slows down at once and recovers bit by bit", (index) => 1 + (400 - (index % 400)) / 200],
    ["with noise of 60 %", (_, random) => 1 + 0.6 * (random.unit() + random.unit() - 1)],
  ])("prompts stay what they are beside decodes, on a machine %s", (_, speedOf) => {
    for (const ratio of afterDecodes(speedOf)) expect(ratio).toBeWithin(0.8, 1.25);
  });

  test("the recorded runaway: fully cached prompts for ten minutes do not make whole prompts dear", () => {
    const random = new SeededRandom(28);
    const model = new OnlineCostModel(linearCost(2, 0.01, 16));
    const prompt = promptOf(256);
    for (let step = 0; step < 20; step++) model.observe(prompt, 4.5);
    for (const [index, shape] of decodes(30_000, 29).entries()) {
      // Two engines share two cores: the speed of each depends on the other.
      const speed = Math.floor(index / 200) % 2 === 0 ? 1 : 3;
      model.observe(shape, speed * (2 + 0.05 * shape.decodes) * (0.95 + 0.1 * random.unit()));
      expect(model.stepMs(prompt)).toBeLessThan(3 * 3 * 4.5);
    }
  });

  test("where a third of the steps waits for a core, tokens are not thought to be free", () => {
    const random = new SeededRandom(30);
    const tiny = linearCost(0.3, 0.025, 16, { sequenceMs: 0.02, pairMs: 2e-5, contextMs: 3e-4 });
    const model = new OnlineCostModel(tiny);
    const [prompt, decode] = [promptOf(256), decodes(1, 31)[0]!];
    const alike = tiny.stepMs(prompt) / tiny.stepMs(decode);
    for (const [index, shape] of decodes(10_000, 32).entries()) {
      const seen = index < 40 && index % 5 === 0 ? prompt : shape;
      const waitMs = random.unit() < 0.3 ? 5 + 30 * random.unit() : 0;
      model.observe(seen, tiny.stepMs(seen) * (0.85 + 0.3 * random.unit()) + waitMs);
      expect(model.stepMs(prompt) / model.stepMs(decode) / alike).toBeWithin(0.5, 1.5);
    }
  });

  test("a prompt of 4,096 tokens after an hour of decodes is predicted as it was, times the machine's speed", () => {
    const model = new OnlineCostModel(small);
    for (const shape of decodes(36_000, 24)) model.observe(shape, 2 * small.stepMs(shape));
    const ratio = model.stepMs(promptOf(4096)) / small.stepMs(promptOf(4096));
    expect(ratio).toBeWithin(1.9, 2.1);
  });

  test("what was learnt of prompts is forgotten after four thousand steps without any, not after five hundred", () => {
    const truth = linearCost(20, 1, 16, { sequenceMs: 0.5, pairMs: 2e-3, contextMs: 4e-4 });
    const model = new OnlineCostModel(small);
    for (const shape of shapes(1000, 25)) model.observe(shape, truth.stepMs(shape));
    const long = promptOf(512, 4000);
    const pairs = (): number => model.stepMs(long) / small.stepMs(long);
    for (const shape of decodes(500, 26)) model.observe(shape, truth.stepMs(shape));
    expect(model.stepMs(long) / truth.stepMs(long)).toBeWithin(0.85, 1.1);
    for (const shape of decodes(6000, 27)) model.observe(shape, truth.stepMs(shape));
    expect(pairs()).toBeWithin(0.9, 1.1);
  });
});

test.each([linearCost(5, 0.02, 16), openProfile("a6000", { overheadMs: 2 }).profile])(
  "what was learnt crosses as plain data, and learning goes on alike",
  (prior) => {
    const truth = linearCost(7, 0.1);
    const model = new OnlineCostModel(prior);
    for (const shape of shapes(50, 8)) model.observe(shape, truth.stepMs(shape));
    const copies = [OnlineCostModel.from(structuredClone(model.state())), model.copy()];
    for (const shape of shapes(50, 9)) {
      for (const each of [model, ...copies]) each.observe(shape, truth.stepMs(shape));
      for (const copy of copies) expect(copy.stepMs(shape)).toBe(model.stepMs(shape));
    }
    for (const copy of copies) {
      expect(copy.state()).toEqual(model.state());
      expect(copy.tileTokens).toBe(prior.tileTokens);
    }
  },
);

/**
 * Calibration of devices with known step times, on machines with other load. Only the device's own clock is
 * read.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { HostedDevice } from "../../gpu/hosted-device.ts";
import type { Step, StepResult } from "../../scheduler/core.ts";
import { shapeOf } from "../../scheduler/cost/cost-model.ts";
import { LinearCost, linearCost } from "../../scheduler/cost/linear.ts";
import { OnlineCostModel } from "../../scheduler/cost/online.ts";
import { DeviceNoise, type Noise, noises } from "../../simulation/noise.ts";
import { runs } from "../../tests/support/property.ts";
import { atSpeedOf, calibrate, type ModelSizes } from "./calibrate.ts";
import { type Bench, shapeOfTrial } from "./trial.ts";

interface BenchOptions {
  readonly noise?: Noise;
  readonly seed?: number;
  readonly contextMax?: number;
  readonly stepTokensMax?: number;
}

const quiet: Noise = { ...noises.mild, deviation: 0, outlierShare: 0 };

/** Bench whose steps take as long as `costs` say, with noise. */
function benchOf(costs: LinearCost, options: BenchOptions = {}): Bench & { steps: number } {
  const { noise = quiet, seed = 1, contextMax = 32_768, stepTokensMax = 2048 } = options;
  const machine = new DeviceNoise(noise, seed);
  let nowMs = 0;
  let step: Step | null = null;
  let done: (result: StepResult) => void = () => {};
  const device: HostedDevice = {
    spec: {
      name: "timed",
      pages: 4096,
      pageTokens: 16,
      stepTokensMax,
      stepChunksMax: 64,
      contextMax,
      vocabSize: 100,
    },
    get inFlight() {
      return step !== null;
    },
    start: (started, then) => {
      step = started;
      done = then;
    },
    wait: () => {
      nowMs += machine.took(costs.stepMs(shapeOf(step!)), nowMs);
      bench.steps += 1;
    },
    deliver: () => {
      step = null;
      done({ kind: "done", sampled: [], deviceMs: 0 });
    },
    close: () => {},
  };
  const bench = { device, nowMs: () => nowMs, steps: 0 };
  return bench;
}

/** Costs like those of a 0.5B model on two cores. */
const small = linearCost(17, 0.55, 16, { sequenceMs: 0.1, pairMs: 1.9e-4, contextMs: 7e-4 }, [
  { tokens: 32, tokenMs: 0.31 },
]);

const devices = fc
  .record({
    stepMs: fc.double({ min: 3, max: 300, noNaN: true }),
    /** Time of a token relative to the step's base time, and of the first tokens relative to that. */
    token: fc.double({ min: 0.01, max: 0.2, noNaN: true }),
    first: fc.double({ min: 0.05, max: 0.6, noNaN: true }),
    firstTokens: fc.constantFrom(0, 8, 32),
    /** Relative growth of a token's time after 2,048 others. */
    later: fc.double({ min: 0.1, max: 4, noNaN: true }),
    context: fc.double({ min: 0.02, max: 2, noNaN: true }),
  })
  .map(({ stepMs, token, first, firstTokens, later, context }) => {
    const tokenMs = stepMs * token;
    const sequences = {
      sequenceMs: tokenMs / 4,
      pairMs: (tokenMs * later) / 2048,
      contextMs: (stepMs * context) / 8192,
    };
    return linearCost(stepMs, tokenMs, 16, sequences, [{ tokens: firstTokens, tokenMs: first * tokenMs }]);
  });

const steps = [
  { sequences: 1, tokens: 1, context: 0 },
  { sequences: 1, tokens: 128, context: 0 },
  { sequences: 1, tokens: 512, context: 0 },
  { sequences: 1, tokens: 256, context: 3000 },
  { sequences: 8, tokens: 1, context: 4000 },
].map(shapeOfTrial);

/** Sizes of a model of 0.5B weights. */
const sizes: ModelSizes = {
  weightBytes: 494e6,
  pageBytes: 24 * 2 * 2 * 64 * 2 * 16,
  hiddenSize: 896,
  layers: 24,
};

test("on a quiet machine a token and prompts are told at once, in a few steps", () => {
  fc.assert(
    fc.property(devices, (truth) => {
      const bench = benchOf(truth);
      const costs = calibrate(bench, sizes);
      for (const shape of steps.slice(0, 3))
        expect(costs.stepMs(shape) / truth.stepMs(shape)).toBeWithin(1 / 3, 3);
      expect(bench.steps).toBeLessThan(10);
    }),
    runs(100),
  );
});

test("proportions of contexts are those of a 0.5B model on two cores within three times", () => {
  const { sequences, tokenMs } = calibrate(benchOf(small), sizes).state;
  expect(sequences.pairMs / small.state.sequences.pairMs).toBeWithin(1 / 3, 3);
  expect(sequences.contextMs / small.state.sequences.contextMs).toBeWithin(1 / 3, 3);
  expect(tokenMs / small.state.tokenMs).toBeWithin(1 / 3, 3);
});

test("the steps that it serves teach it what every kind of step takes", () => {
  const learned = new OnlineCostModel(calibrate(benchOf(small), sizes));
  for (let round = 0; round < 60; round++)
    for (const shape of steps) learned.observe(shape, small.stepMs(shape));
  const kept = LinearCost.from(structuredClone(learned.learnt()!.state));
  for (const shape of steps) expect(kept.stepMs(shape) / small.stepMs(shape)).toBeWithin(0.75, 4 / 3);
});

test("a model that has seen few steps has nothing to keep", () => {
  const learned = new OnlineCostModel(calibrate(benchOf(small), sizes));
  for (const shape of steps) learned.observe(shape, small.stepMs(shape));
  expect(learned.learnt()).toBeNull();
});

test("devices that hold little are measured with what they hold", () => {
  fc.assert(
    fc.property(
      devices,
      fc.integer({ min: 2, max: 64 }),
      fc.integer({ min: 1, max: 64 }),
      (truth, contextMax, stepTokensMax) => {
        const measured = calibrate(benchOf(truth, { contextMax, stepTokensMax }), sizes);
        for (const shape of steps) expect(measured.stepMs(shape)).toBeWithin(1e-9, 1e12);
      },
    ),
    runs(100),
  );
});

test("kept costs are taken at the speed of the moment, whatever it is", () => {
  fc.assert(
    fc.property(devices, fc.double({ min: 0.01, max: 100, noNaN: true }), (truth, slowdown) => {
      const bench = benchOf(truth.times(slowdown));
      const costs = atSpeedOf(bench, truth);
      for (const shape of steps)
        expect(costs.stepMs(shape) / truth.stepMs(shape) / slowdown).toBeWithin(0.999, 1.001);
      expect(bench.steps).toBe(2);
    }),
    runs(100),
  );
});

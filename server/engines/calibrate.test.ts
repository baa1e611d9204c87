/**
 * Calibration of devices with known step times, on machines with other load. Only the device's own clock is
 * read.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { HostedDevice } from "../../gpu/hosted-device.ts";
import type { Step, StepResult } from "../../scheduler/core.ts";
import { shapeOf } from "../../scheduler/cost/cost-model.ts";
import { LinearCost, type LinearState, linearCost } from "../../scheduler/cost/linear.ts";
import { DeviceNoise, type Noise, noises } from "../../simulation/noise.ts";
import { runs } from "../../tests/support/property.ts";
import { calibrate, ROUNDS_MAX } from "./calibrate.ts";
import { APART_MAX, rechecked } from "./recheck.ts";
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

/** Largest ratio by which measured costs distort the relation between two steps; ≥ 1. */
function offOf(measured: LinearCost, truth: LinearCost): number {
  const ratios = steps.map((shape) => measured.stepMs(shape) / truth.stepMs(shape));
  return Math.max(...ratios) / Math.min(...ratios);
}

test("on a quiet machine every step is told within a fifth of what it takes, beside the others", () => {
  fc.assert(
    fc.property(devices, (truth) => expect(offOf(calibrate(benchOf(truth)), truth)).toBeLessThan(1.2)),
    runs(100),
  );
});

test("on a quiet machine each step is tried a few times only", () => {
  const bench = benchOf(small);
  calibrate(bench);
  expect(bench.steps).toBeLessThan(45);
});

test("beside others that come and go, take a core for a while, or stop a step, most steps are told within a third", () => {
  const machines = fc.record({
    deviation: fc.double({ min: 0, max: 0.08, noNaN: true }),
    outlierShare: fc.double({ min: 0, max: 0.1, noNaN: true }),
    outlierFactor: fc.double({ min: 1.5, max: 20, noNaN: true }),
    flipEveryMs: fc.constantFrom(null, 300, 1000, 4000),
    flipFactor: fc.double({ min: 1, max: 3, noNaN: true }),
  });
  let [told, all] = [0, 0];
  fc.assert(
    fc.property(machines, fc.nat(1e6), (noise, seed) => {
      const off = offOf(calibrate(benchOf(small, { noise, seed }), ROUNDS_MAX.kept), small);
      all += 1;
      if (off < 4 / 3) told += 1;
    }),
    runs(200),
  );
  expect(told / all).toBeGreaterThan(0.8);
});

test("devices that hold little are measured with what they hold", () => {
  fc.assert(
    fc.property(
      devices,
      fc.integer({ min: 2, max: 64 }),
      fc.integer({ min: 1, max: 64 }),
      (truth, contextMax, stepTokensMax) => {
        const bench = benchOf(truth, { contextMax, stepTokensMax });
        const measured = calibrate(bench);
        for (const shape of steps) expect(measured.stepMs(shape)).toBeWithin(1e-9, 1e12);
        expect(rechecked(bench, measured)).not.toBeNull();
      },
    ),
    runs(100),
  );
});

test("kept costs are taken at the speed of the moment, whatever it is", () => {
  fc.assert(
    fc.property(devices, fc.double({ min: 0.01, max: 100, noNaN: true }), (truth, slowdown) => {
      const bench = benchOf(truth.times(slowdown));
      const costs = rechecked(bench, truth)!;
      for (const shape of steps)
        expect(costs.stepMs(shape) / truth.stepMs(shape) / slowdown).toBeWithin(0.999, 1.001);
      expect(bench.steps).toBeLessThan(6);
    }),
    runs(100),
  );
});

function times(factor: number, first: LinearState["first"]): LinearState["first"] {
  return first.map(({ tokens, tokenMs }) => ({ tokens, tokenMs: factor * tokenMs }));
}

test("kept costs of which one step takes much longer or shorter beside another are not taken", () => {
  const { stepMs, tokenMs, sequences, first } = small.state;
  const wrong = [
    { stepMs: 10 * stepMs },
    { tokenMs: 3 * tokenMs, first: times(3, first) },
    { tokenMs: tokenMs / 3, first: times(1 / 3, first) },
    { sequences: { ...sequences, pairMs: 4 * sequences.pairMs } },
    { sequences: { ...sequences, contextMs: 30 * sequences.contextMs } },
  ].map((change) => LinearCost.from({ ...small.state, ...change }));
  for (const kept of wrong) expect(rechecked(benchOf(small), kept)).toBeNull();
});

test("kept costs that were taken are off by no more than is said, of the steps that were tried", () => {
  const factor = fc.double({ min: 0.2, max: 5, noNaN: true });
  fc.assert(
    fc.property(devices, factor, factor, factor, (truth, token, pair, context) => {
      const { tokenMs, sequences, first } = truth.state;
      const kept = LinearCost.from({
        ...truth.state,
        tokenMs: token * tokenMs,
        first: times(token, first),
        sequences: {
          ...sequences,
          pairMs: pair * sequences.pairMs,
          contextMs: context * sequences.contextMs,
        },
      });
      const costs = rechecked(benchOf(truth), kept);
      if (costs === null) return;
      for (const trial of [
        { sequences: 1, tokens: 1, context: 0 },
        { sequences: 1, tokens: 1, context: 2048 },
      ])
        expect(costs.stepMs(shapeOfTrial(trial)) / truth.stepMs(shapeOfTrial(trial))).toBeWithin(
          0.999 / APART_MAX,
          1.001 * APART_MAX,
        );
    }),
    runs(200),
  );
});

test("one step that waits for a core is no reason to measure again", () => {
  const noise = { ...quiet, outlierShare: 0.1, outlierFactor: 4 };
  const taken = Array.from({ length: 200 }, (_, seed) => rechecked(benchOf(small, { noise, seed }), small));
  expect(taken.filter((costs) => costs !== null).length).toBeGreaterThan(190);
});

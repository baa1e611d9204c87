import { describe, expect, test } from "bun:test";
import { matrixFormats } from "../../model/matrix-formats.ts";
import { storedTypes } from "../../model/stored-types.ts";
import type { ModelWork } from "../../model/work.ts";
import { commonModels, commonWork } from "./common-models.ts";
import { ESTIMATE_TOKENS, estimateSpeed } from "./estimate.ts";
import { type MachineRates, type MatrixShare, shareOf } from "./measure.ts";

const Q4_K = storedTypes.Q4_K.number;
/** A machine that reads 10 GB/s and multiplies 100 GFLOP/s and 400 GOP/s. */
const ceilings = { read: 10e9, f32: 100e9, bf16: 100e9, int8: 400e9 };

function measured(format: number, rows: number, share: number, numberBytes: number): MatrixShare {
  const limit = rows === 1 ? "memory" : "arithmetic";
  return { format, rows, share, numberBytes, limit, operationsPerSecond: 0, bytesPerSecond: 0 };
}

function machine(matrices: readonly MatrixShare[]): MachineRates {
  return { ceilings, matrices, attention: [] };
}

function workOf(matrices: ModelWork["matrices"]): ModelWork {
  return { matrices, positionBytes: 0, positionOperations: 0 };
}

describe("the estimate of a model's speed", () => {
  test("reads each byte once for a token, and multiplies each number for each token of a prompt", () => {
    // 10^9 numbers of half a byte: 0.05 s to read, 0.005 s to multiply with one token.
    const work = workOf([{ format: Q4_K, numbers: 1e9, share: 1, tokens: "all" }]);
    const whole = machine([measured(Q4_K, 1, 1, 0.5), measured(Q4_K, 512, 1, 0.5)]);
    const speed = estimateSpeed(work, whole);
    expect(speed.matrixBytes).toBe(0.5e9);
    expect(speed.streamTokensPerSecond).toBeCloseTo(20, 9);
    expect(speed.promptTokensPerSecond).toBeCloseTo(200, 9);
    expect([speed.streamLimit, speed.promptLimit]).toEqual(["memory", "arithmetic"]);
  });

  test("takes the measured share of each number of rows", () => {
    const work = workOf([{ format: Q4_K, numbers: 1e9, share: 1, tokens: "all" }]);
    const half = machine([measured(Q4_K, 1, 0.8, 0.5), measured(Q4_K, 512, 0.5, 0.5)]);
    const speed = estimateSpeed(work, half);
    expect(speed.streamTokensPerSecond).toBeCloseTo(16, 9);
    expect(speed.promptTokensPerSecond).toBeCloseTo(100, 9);
  });

  test("takes plain matrices by the rate of bf16", () => {
    const work = workOf([{ format: matrixFormats.plain, numbers: 1e9, share: 1, tokens: "all" }]);
    const speed = estimateSpeed(work, machine([measured(matrixFormats.plain, 512, 1, 2)]));
    expect(speed.promptTokensPerSecond).toBeCloseTo(50, 9); // 2 GFLOP of 100 for each token
    expect(speed.streamTokensPerSecond).toBeCloseTo(5, 9); // 2 GB of 10
  });

  test("multiplies the vocabulary with one token of a prompt", () => {
    const work = workOf([{ format: Q4_K, numbers: 1e9, share: 1, tokens: "drawn" }]);
    const speed = estimateSpeed(work, machine([measured(Q4_K, 1, 1, 0.5)]));
    expect(speed.promptTokensPerSecond).toBeCloseTo(ESTIMATE_TOKENS * 20, 6);
    expect(speed.promptLimit).toBe("memory");
  });

  test("reads the experts of one token, and for a prompt those that any token uses", () => {
    const work = workOf([{ format: Q4_K, numbers: 1e9, share: 1 / 4, tokens: "all" }]);
    const speed = estimateSpeed(work, machine([measured(Q4_K, 1, 1, 0.5)]));
    expect(speed.matrixBytes).toBe(0.5e9);
    expect(speed.streamTokensPerSecond).toBeCloseTo(80, 9);
    expect(speed.promptTokensPerSecond).toBeCloseTo(800, 6); // a quarter of the products
  });

  test("adds keys and values to a stream, and scores to a prompt", () => {
    // 2 MB a position: 512 of them are a tenth of a second. 4 GFLOP a token and 256 positions: 10.24 s a token.
    const attention: ModelWork = { matrices: [], positionBytes: 2e9 / 1024, positionOperations: 4e9 };
    const speed = estimateSpeed(attention, machine([]));
    expect(speed.promptTokensPerSecond).toBeCloseTo(1 / 10.24, 9);
    expect(speed.streamTokensPerSecond).toBeCloseTo(1 / 20.48, 9);
    expect(speed.streamLimit).toBe("arithmetic");
    const light = estimateSpeed({ ...attention, positionOperations: 1 }, machine([]));
    expect(light.streamTokensPerSecond).toBeCloseTo(10, 9);
    expect(light.streamLimit).toBe("memory");
  });

  test("takes the nearest measured format for one that was not measured", () => {
    const work = workOf([{ format: storedTypes.Q5_K.number, numbers: 1e9, share: 1, tokens: "all" }]);
    const rates = machine([measured(matrixFormats.plain, 1, 1, 2), measured(Q4_K, 1, 1, 0.5)]);
    expect(estimateSpeed(work, rates).streamTokensPerSecond).toBeCloseTo(20, 9);
  });
});

test("a kernel's share is that of the ceiling which limits it", () => {
  const rates = { operationsPerSecond: 100e9, bytesPerSecond: 9e9 };
  expect(shareOf(rates, ceilings, "int8")).toEqual({ ...rates, limit: "memory", share: 0.9 });
  const busy = { operationsPerSecond: 300e9, bytesPerSecond: 1e9 };
  expect(shareOf(busy, ceilings, "int8")).toEqual({ ...busy, limit: "arithmetic", share: 0.75 });
});

test("common models have about as many numbers as their names say", () => {
  const billions = commonModels.map((model) => {
    const { matrices } = commonWork(model, "Q8_0");
    return [model.name, (matrices.reduce((sum, { numbers }) => sum + numbers, 0) / 1e9).toFixed(1)];
  });
  expect(billions).toEqual([
    ["0.5B", "0.5"],
    ["1B", "1.2"],
    ["3B", "3.2"],
    ["8B", "7.5"],
    ["14B", "14.0"],
    ["30B-A3B", "30.2"],
  ]);
});

test("Q4_K_M has half of the downward projections in Q6_K", () => {
  const { matrices } = commonWork(commonModels[3]!, "Q4_K_M");
  const down = 4096 * 14_336;
  const better = matrices.find(({ format, numbers }) => format !== Q4_K && numbers % down === 0);
  expect(better!.numbers / down).toBe(16);
});

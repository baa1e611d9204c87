import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { estimatedTable, readResults, table } from "../gpu-table.ts";
import { estimate, fewInstructionsPerKb, h200, type KernelRun } from "./cost-model.ts";
import { listedRuns } from "./shapes.ts";

const run = (members: Partial<KernelRun>): KernelRun => ({ kernel: "gate", bytes: 0, flops: 0, ...members });

test("docs/gpu.md has the table", () => {
  const page = readFileSync(join(import.meta.dir, "../../docs/gpu.md"), "utf8");
  expect(page).toContain(estimatedTable());
});

test("every kernel of the list has an estimate", () => {
  for (const one of listedRuns) expect(estimate(one, h200)?.us).toBeGreaterThan(0);
});

test("a launch takes as long as its slowest unit", () => {
  expect(estimate(run({ bytes: 4.3e9 * 0.85 }), h200)).toEqual({ us: 1001.2, bound: "memory" });
  expect(estimate(run({ bytes: 1000 }), h200)?.bound).toBe("launch");
  expect(estimate(run({ kernel: "cublaslt" }), h200)).toBeNull();
  const product = { kernel: "gemm_few", n: 28672, k: 4096, tokens: 1, flops: 2 * 28672 * 4096 };
  expect(estimate(run({ ...product, format: "bf16", bytes: 2 * 28672 * 4096 }), h200)?.bound).toBe("memory");
  expect(estimate(run({ ...product, format: "int4", bytes: 0.5625 * 28672 * 4096 }), h200)?.bound).toBe(
    "issue",
  );
  // Twice the waves of blocks take twice the time.
  const many = { kernel: "gemm_many", format: "bf16", n: 128 * 132, k: 4096 };
  const [one, two] = [128, 256].map((tokens) => estimate(run({ ...many, tokens }), h200)!.us - 1.2);
  expect(two! / one!).toBeCloseTo(2, 6);
});

test("more tokens and fewer bits take more instructions for each KB of codes", () => {
  expect(fewInstructionsPerKb(64, "bf16")).toBeGreaterThan(fewInstructionsPerKb(8, "bf16"));
  expect(fewInstructionsPerKb(1, "int4")).toBeGreaterThan(fewInstructionsPerKb(1, "int8"));
  expect(() => fewInstructionsPerKb(1, "int2")).toThrow("int2");
});

test("measured runs replace estimates, by this GPU's ceilings", () => {
  const listed = listedRuns[0]!;
  const { name, gpu, runs } = readResults(
    [
      '{"gpu":"NVIDIA H100","multiprocessors":132}',
      '{"ceiling":"copy","per_second":3e12}',
      "not a line of JSON",
      JSON.stringify({ ...listed, us: 100 }),
      '{"rung":"few.bf16","ended":"ok"}',
    ].join("\n"),
  );
  expect(name).toBe("NVIDIA H100");
  expect(gpu.copyBytesPerSecond).toBe(3e12);
  expect(runs).toHaveLength(listedRuns.length);
  const rows = table(runs, gpu).split("\n").slice(2);
  expect(rows[0]).toContain("| 100 | 78 % |");
  expect(rows.map((row) => row.includes("measured"))).toEqual([
    true,
    ...listedRuns.slice(1).map(() => false),
  ]);
});

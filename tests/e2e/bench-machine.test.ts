/** `bunting bench --machine`: the report's shape, and figures that fit each other. Speed itself is not tested. */

import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { MachineReport } from "../../server/cli/bench-machine.ts";
import { Program } from "./program.ts";

setDefaultTimeout(120_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-machine-"));
afterAll(() => rmSync(scratch, { recursive: true }));

let report: MachineReport;
let output: string;
beforeAll(async () => {
  const file = join(scratch, "report.json");
  const program = Program.bunting(["bench", "--machine", "--threads", "1", "--json", file]);
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  output = program.output;
  report = JSON.parse(readFileSync(file, "utf8")) as MachineReport;
});

describe("bench --machine", () => {
  test("reports ceilings, kernels and estimates", () => {
    expect(report).toMatchObject({ threads: 1, cores: expect.any(Number), processor: expect.any(String) });
    for (const rate of Object.values(report.ceilings)) expect(rate).toBeGreaterThan(1e6);
    expect(report.matrices.map(({ format, rows }) => `${format} ${rows}`)).toEqual(
      ["bf16", "q8_0", "int4", "Q4_K", "Q6_K"].flatMap((format) =>
        [1, 8, 64, 512].map((rows) => `${format} ${rows}`),
      ),
    );
    expect(report.attention.map(({ tokens, positions }) => [tokens, positions])).toEqual([
      [64, 16_384],
      [1, 16_384],
    ]);
    expect(report.estimates.map(({ model, quant }) => `${model} ${quant}`)).toEqual(
      ["0.5B", "1B", "3B", "8B", "14B", "30B-A3B"].flatMap((model) => [`${model} Q4_K_M`, `${model} Q8_0`]),
    );
  });

  test("counts the bytes of each format", () => {
    const bytesOf = new Map(report.matrices.map(({ format, numberBytes }) => [format, numberBytes]));
    // Bytes of a number: 2, 8.5 and 4.5 bits, and those of superblocks, which take up to 6 % more than in files.
    expect(bytesOf.get("bf16")).toBeCloseTo(2, 6);
    expect(bytesOf.get("q8_0")).toBeCloseTo(8.5 / 8, 6);
    expect(bytesOf.get("int4")).toBeCloseTo(4.5 / 8, 6);
    const ofFiles = { Q4_K: 144 / 256, Q6_K: 210 / 256 };
    for (const [format, bytes] of Object.entries(ofFiles)) {
      expect(bytesOf.get(format)! / bytes).toBeGreaterThanOrEqual(1);
      expect(bytesOf.get(format)! / bytes).toBeLessThan(1.06);
    }
  });

  test("names the ceiling of which a kernel reaches the larger share", () => {
    const { readBytesPerSecond, bf16OperationsPerSecond, int8OperationsPerSecond } = report.ceilings;
    for (const { format, limit, share, bytesPerSecond, operationsPerSecond } of report.matrices) {
      const peak = format === "bf16" ? bf16OperationsPerSecond : int8OperationsPerSecond;
      const [ofMemory, ofArithmetic] = [bytesPerSecond / readBytesPerSecond, operationsPerSecond / peak];
      expect(share).toBeCloseTo(Math.max(ofMemory, ofArithmetic), 9);
      expect(limit).toBe(ofMemory > ofArithmetic ? "memory" : "arithmetic");
    }
  });

  test("estimates that larger models are slower, and mixtures of experts faster than their size", () => {
    const speed = (name: string) =>
      report.estimates.find(({ model, quant }) => `${model} ${quant}` === name)!;
    for (const quant of ["Q4_K_M", "Q8_0"]) {
      const [small, middle, large, mixture] = ["1B", "8B", "14B", "30B-A3B"].map((model) =>
        speed(`${model} ${quant}`),
      ) as [SpeedOf, SpeedOf, SpeedOf, SpeedOf];
      expect(small.streamTokensPerSecond).toBeGreaterThan(middle.streamTokensPerSecond);
      expect(middle.promptTokensPerSecond).toBeGreaterThan(large.promptTokensPerSecond);
      expect(mixture.matrixBytes).toBeGreaterThan(large.matrixBytes);
      expect(mixture.streamTokensPerSecond).toBeGreaterThan(large.streamTokensPerSecond);
    }
  });

  test("prints the same figures", () => {
    expect(output).toMatch(/^memory {2}[\d.]+ GB\/s read$/m);
    expect(output).toMatch(/^Q4_K, 512 rows +[\d.]+ G(OP|B)\/s {2}\d+ % of (arithmetic|memory)$/m);
    expect(output).toMatch(/^attention, decode over 16384 keys /m);
    expect(output).toMatch(
      /^30B-A3B Q8_0 +[\d.]+ GiB +[\d.]+ +(arithmetic|memory) +[\d.]+ +(arithmetic|memory)$/m,
    );
  });
});

type SpeedOf = MachineReport["estimates"][number];

test("an instruction set of no known name is refused", async () => {
  const program = Program.bunting(["bench", "--machine", "--isa", "sse2"]);
  expect(await program.exitCode()).toBe(1);
  expect(program.errors).toContain("portable, avx2");
});

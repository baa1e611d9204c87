/**
 * Kernels of the CPU engine on every instruction set of this machine, in one thread. Results are shares of
 * the machine's peak with that instruction set: `npx bun benchmarks/kernels.ts [--level avx2] [--record
 * benchmarks/cpu/kernels.md]`.
 *
 * Times are processor time of the measuring thread. Compute-bound kernels are thus measured correctly on a
 * busy machine too; memory-bound ones are not. Single kernels in more shapes:
 * build/native/bunting_bench_gemm, bunting_bench_attention.
 */
import { writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { isaNames, openLibrary } from "../gpu/native.ts";
import { type Cell, table } from "../server/cli/table.ts";
import { runProgram } from "./cpu/runs.ts";

interface Line {
  readonly level: string;
  readonly kernel: string;
  readonly what: string;
  readonly us: number;
  readonly gflops: number;
  readonly ofPeak: number;
  readonly gbytes: number;
  readonly ofMemory: number;
}

const root = resolve(import.meta.dir, "..");
const { values } = parseArgs({
  options: {
    build: { type: "string", default: join(root, "build/native") },
    level: { type: "string" },
    record: { type: "string" },
  },
});
if (values.level !== undefined && !(isaNames as readonly string[]).includes(values.level)) {
  throw new Error(`--level ${values.level}: wanted ${isaNames.join(", ")}`);
}

async function linesOf(program: string, ...options: string[]): Promise<Line[]> {
  await runProgram(["cmake", "--build", values.build, "--target", program]);
  const out = await runProgram([join(values.build, program), "--json", ...options]);
  return out
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as Line);
}

/** Formats the rate, arithmetic or memory, that is the larger share of its peak. */
function cell(line: Line | undefined): string | null {
  if (line === undefined) return null;
  const isArithmetic = line.ofPeak > line.ofMemory || (line.ofPeak === 0 && line.gflops > line.gbytes);
  const [rate, share] = isArithmetic ? [line.gflops, line.ofPeak] : [line.gbytes, line.ofMemory];
  const percent = share === 0 ? "" : ` (${Math.round(share * 100)} %)`;
  return `${rate < 10 ? rate.toFixed(1) : rate.toFixed(0)} ${isArithmetic ? "GFLOP/s" : "GB/s"}${percent}`;
}

const level = values.level === undefined ? [] : [values.level];
const gemmLevel = values.level === undefined ? [] : ["--level", values.level];
const shapes = ["--tokens", "1,8,32,512,2048", "--shape", "8192x2048"];
const lines = [
  ...(await linesOf("bunting_bench_gemm", ...shapes, ...gemmLevel)),
  ...(await linesOf("bunting_bench_attention", ...level)),
];
const levels = [...new Set(lines.map((line) => line.level))];
const byKernel = new Map<string, Line[]>();
for (const line of lines) {
  const name = `${line.kernel}: ${line.what}`;
  byKernel.set(name, [...(byKernel.get(name) ?? []), line]);
}
const rows = [...byKernel].map(([name, of]): Cell[] => [
  name,
  ...levels.map((isa) => cell(of.find((line) => line.level === isa))),
]);
const head = ["kernel", ...levels];
console.log(table(head, rows));

if (values.record !== undefined) {
  const { processor } = openLibrary(join(values.build, "libbunting_cpu.so")).machineProbe();
  const commit = (await runProgram(["git", "-C", root, "rev-parse", "--short", "HEAD"])).trim();
  const line = (words: readonly Cell[]): string => `| ${words.map((word) => word ?? "–").join(" | ")} |`;
  writeFileSync(
    values.record,
    `# Kernels of the CPU engine, one by one

Written by \`npx bun benchmarks/kernels.ts --record\`. One thread of ${processor}, ${new Date().toISOString().slice(0, 10)}, commit ${commit}. Shares are
of the level's multiply-adds in registers (GFLOP/s; for q8 and q4 billions of integer operations) or of a plain read of memory
(GB/s), whichever is the larger; a kernel on rows that are in a cache is faster than memory.

${line(head)}
|---|${levels.map(() => "---:|").join("")}
${rows.map(line).join("\n")}
`,
  );
}

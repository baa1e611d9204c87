/** Command `bunting simulate` as a user runs it. */

import { afterAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-simulate-"));
afterAll(() => rmSync(scratch, { recursive: true }));
/** Copy without a folder of traces beside it, so that it must use drawn workloads. */
const bare = join(scratch, "bare");
mkdirSync(bare);

interface JsonReport {
  readonly name: string;
  readonly isComplete: boolean;
  readonly calls: readonly object[];
  readonly historyHash: string;
}

async function simulate(args: readonly string[]): Promise<{ output: string; reports: JsonReport[] }> {
  const file = join(scratch, "report.json");
  const program = Program.bunting(["simulate", ...args, "--json", file], { cwd: bare });
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  return { output: program.output, reports: JSON.parse(readFileSync(file, "utf8")) as JsonReport[] };
}

test("policies are compared on the same calls, and the same seed gives the same history", async () => {
  const args = ["--workload", "tools", "--requests", "40", "--policy", "ours", "--policy", "sglang"];
  const { output, reports } = await simulate([...args, "--devices", "2xa100", "--seed", "7"]);
  expect(output).toContain("tools (drawn from published statistics) on 2 × ");
  expect(reports.map(({ name, isComplete, calls }) => [name, isComplete, calls.length])).toEqual([
    ["ours", true, 40],
    ["sglang", true, 40],
  ]);
  for (const { historyHash } of reports) expect(output).toContain(historyHash);
  const again = await simulate([...args, "--devices", "2xa100", "--seed", "7"]);
  expect(again.reports).toEqual(reports);
  const other = await simulate([...args, "--devices", "2xa100", "--seed", "8"]);
  expect(other.reports[0]!.historyHash).not.toBe(reports[0]!.historyHash);
}, 60_000);

const refused: readonly (readonly [args: readonly string[], sentence: string])[] = [
  [["--workload", "none"], "There is no workload none; there are chat, "],
  [["--policy", "best"], 'There is no policy "best"; there are vllm, '],
  [["--devices", "4xb200"], '"4xb200" is not a number and one of a100, a6000, rtx4090, as in 4xa6000.'],
  [["--traces", "/nowhere"], "There is no folder of traces at /nowhere."],
];

for (const [args, sentence] of refused) {
  test(`${args.join(" ")} is refused`, async () => {
    const program = Program.bunting(["simulate", ...args], { cwd: bare });
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toStartWith(sentence);
  });
}

/** benchmarks/gpu.sh: both calls on the emulated GPU in tiny shapes, and rungs that hang, crash or lack something. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

setDefaultTimeout(900_000); // milliseconds, for an emulated GPU on a busy machine

const root = resolve(import.meta.dir, "../..");
const FILES_MAX = 8;

interface Line {
  readonly rung?: string;
  readonly ended?: string;
  readonly why?: string;
  readonly [member: string]: unknown;
}

interface Climbed {
  readonly exitCode: number;
  readonly lines: readonly Line[];
  readonly log: string;
  readonly files: readonly string[];
}

async function climb(
  which: "first" | "second" | "whole",
  env: Readonly<Record<string, string>>,
): Promise<Climbed> {
  const folder = mkdtempSync(join(tmpdir(), "bunting-ladder-"));
  try {
    const child = Bun.spawn(["bash", join(root, "benchmarks/gpu.sh"), which, folder], {
      env: { ...process.env, BUNTING_BUN: process.execPath, BUNTING_LADDER_EMULATED: "1", ...env },
      stdout: "ignore",
      stderr: "inherit",
    });
    const exitCode = await child.exited;
    const read = (name: string): string => readFileSync(join(folder, name), "utf8");
    const lines = read("results.jsonl")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Line);
    return { exitCode, lines, log: read("log.txt"), files: readdirSync(folder) };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function climbRungs(rungs: string, budgetSeconds: number): Promise<Climbed> {
  const folder = mkdtempSync(join(tmpdir(), "bunting-rungs-"));
  try {
    const file = join(folder, "fake.rungs");
    writeFileSync(file, rungs);
    return await climb("first", {
      BUNTING_LADDER_RUNGS: file,
      BUNTING_LADDER_SECONDS: String(budgetSeconds),
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const ends = ({ lines }: Climbed): Record<string, string | undefined> =>
  Object.fromEntries(lines.flatMap(({ rung, ended }) => (rung === undefined ? [] : [[rung, ended]])));

test("the first call tests, measures and survives a fault and a hang", async () => {
  const climbed = await climb("first", {
    BUNTING_LADDER_SECONDS: "800",
    BUNTING_LADDER_TESTS: "cuda_gather",
  });
  const { exitCode, lines, files } = climbed;
  const ended = ends(climbed);
  const optional = ["cublaslt"];
  const wrong = Object.entries(ended).filter(([rung, how]) => how !== "ok" && !optional.includes(rung));
  expect(wrong).toEqual([]);
  expect(ended).toMatchObject({ "test.cuda_gather_copies_rows": "ok", "few.mxfp4": "ok", hang: "ok" });
  expect(exitCode).toBe(0);
  expect(files.length).toBeLessThanOrEqual(FILES_MAX);
  const kernels = new Set(lines.map((line) => line.kernel));
  for (const kernel of ["gemm_few", "gemm_many", "attention", "add_norm", "rope_append", "sample", "experts"])
    expect(kernels).toContain(kernel);
  expect(lines.filter(({ bits }) => bits !== undefined)).toHaveLength(20);
});

test("the second call chats, and names the tools that are not there", async () => {
  const climbed = await climb("second", {
    BUNTING_LADDER_SECONDS: "800",
    BUNTING_LADDER_MODEL: join(root, "models/demo"),
    BUNTING_LADDER_CONFORMANCE: "a bias of 100 decides",
  });
  const failures = Object.entries(ends(climbed)).filter(([, how]) => how !== "ok" && how !== "left out");
  expect(failures).toEqual([]);
  expect(ends(climbed)).toMatchObject({ chat: "ok", conformance: "ok" });
  expect(climbed.exitCode).toBe(0);
  expect(climbed.files.length).toBeLessThanOrEqual(FILES_MAX);
});

test("all else climbs on a small model, and names the tools that are not there", async () => {
  const climbed = await climb("whole", {
    BUNTING_LADDER_SECONDS: "800",
    BUNTING_LADDER_MODEL: join(root, "models/demo"),
    BUNTING_LADDER_CONFORMANCE: "a bias of 100 decides",
    BUNTING_LADDER_GROUPS: "cuda",
  });
  const failures = Object.entries(ends(climbed)).filter(([, how]) => how !== "ok" && how !== "left out");
  expect(failures).toEqual([]);
  expect(ends(climbed)).toMatchObject({ conformance: "ok", cuda: "ok", model: "ok", serving: "ok" });
  expect(climbed.log).toMatch(/\| 2 \| [\d.]+ \| [\d.]+ \| \d+ \|/);
});

test("a rung that crashes, fails or lacks a tool loses only itself", async () => {
  const climbed = await climbRungs(
    [
      "# comments and empty lines are no rungs",
      "",
      "crash :: 5 :: echo before; kill -SEGV $$",
      "fail :: 5 :: exit 3",
      "build :: 5 :: PATH=/nowhere bench=/nowhere carry=/nowhere build_where_needed",
      `each.{} :: 5 :: echo '{"got":"{}"}' :: printf '%s\\n' one two`,
      "last :: 5 :: echo said",
    ].join("\n"),
    60,
  );
  expect(ends(climbed)).toEqual({
    crash: "crashed",
    fail: "failed",
    build: "left out",
    "each.one": "ok",
    "each.two": "ok",
    last: "ok",
  });
  expect(climbed.exitCode).toBe(1);
  expect(climbed.lines.flatMap(({ got }) => (got === undefined ? [] : [got]))).toEqual(["one", "two"]);
  expect(climbed.log).toContain("before");
  expect(climbed.log).toContain("Left out: there is no nvcc.");
  expect(climbed.log).toContain("== last: ok (0)\nsaid");
});

test("a rung that hangs ends with the budget, and rungs after it are named", async () => {
  const climbed = await climbRungs("hang :: 600 :: trap '' TERM; sleep 600\nlate :: 5 :: true", 4);
  expect(ends(climbed)).toEqual({ hang: "timed out", late: "left out" });
  expect(climbed.lines.find(({ rung }) => rung === "late")?.why).toBe("no time is left");
  expect(climbed.exitCode).toBe(1);
});

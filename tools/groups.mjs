// Groups of checks and tests, each one command, and parsers of their counts.

import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename, delimiter, join, resolve } from "node:path";
import { buildNative, nativeBuild } from "./native.mjs";
import { checkRegisters } from "./ptxas.mjs";
import { checkInstructions } from "./sass.mjs";
import { bun, root } from "./setup.mjs";

/** Timeout of a hanging test. Far above any test's time, since machines may be slow and busy. */
const TEST_TIMEOUT_MS = 60_000;

/** Number of parallel test processes. Many tests use several threads themselves. */
const workers = Math.min(availableParallelism(), 4);

/** Paths of Bun tests that need no device and no socket: beside the code, and the rules of the tree. */
const NULL_PATHS = [
  "base",
  "grammar",
  "model",
  "scheduler",
  "simulation",
  "gpu",
  "text",
  "server",
  "tools",
  "benchmarks",
  "tests/tidy.test.ts",
];

/** Checks of format, lint and types: one count each. */
export function staticChecks() {
  const node = process.execPath;
  const bin = (path) => join(root, "node_modules", path);
  const sources = sourceFiles(join(root, "csrc"), /\.(cpp|h|cu)$/);
  return [
    check("format (TypeScript)", node, [bin("@biomejs/biome/bin/biome"), "format", "--colors=off", "."]),
    check("lint (TypeScript)", node, [
      bin("@biomejs/biome/bin/biome"),
      "lint",
      "--colors=off",
      "--error-on-warnings",
      ".",
    ]),
    check("types (TypeScript)", node, [bin("typescript/bin/tsc"), "--noEmit", "-p", "."]),
    check("types (client)", node, [bin("typescript/bin/tsc"), "--noEmit", "-p", "sdk"]),
    check("types (page)", node, [bin("typescript/bin/tsc"), "--noEmit", "-p", "server/web"]),
    check("format (C++)", node, [bin("clang-format-node/build/cli.js"), "--dry-run", "-Werror", ...sources]),
    check("lock file", node, [join(root, "tools", "complete-lock.mjs"), "--check"]),
  ];
}

export function nullTests() {
  return bunTests("null tests (no device)", NULL_PATHS);
}

export function nativeTests() {
  return nativeProgram("native tests", "bunting_tests");
}

/** Tests of the CUDA kernels, executed by the emulator. */
export function emulatorTests() {
  return nativeProgram("CUDA kernels, emulated", join("cuda", "bunting_emulator_tests"));
}

/** Tests of the CUDA engine's driver calls, with a fake of the CUDA runtime. */
export function cudaDriverTests() {
  return nativeProgram("CUDA driver calls, on a fake", join("cuda", "bunting_cuda_driver_tests"));
}

/**
 * Tests of the engine and its kernels on small models under a sanitizer. These builds are slow and have few
 * instruction sets, so they run selected tests that together cover every kernel, format, thread and file.
 */
export function sanitizedTests() {
  const inBoth =
    "engine_draws engine_invariant_to_threads attention_plan_shares parallel_ packed_file adapter";
  const threads = "thread_pool_comes thread_pool_many thread_pool_numbers thread_pool_parts";
  const engine = "engine_contains engine_runs engine_refuses model_ step_block stored_types copy_page";
  const kernels =
    "attention_matches_reference_over gemm_adds grouped_ pack_ quantise rope_append embed norm add_normed scale_and_cap gate sample_matches sample_reports";
  return [
    sanitizedTest("address", "native tests", "bunting_tests", `${inBoth} ${engine} ${kernels}`),
    sanitizedTest("thread", "native tests", "bunting_tests", `${inBoth} ${threads}`),
  ];
}

/**
 * Tests of every CUDA kernel and of whole CUDA engine steps, executed by the emulator under sanitizers.
 * ThreadSanitizer also detects races within a thread block that no tested execution order exposed. Excludes
 * slow tests that cover the same kernels again.
 */
export function sanitizedEmulatorTests() {
  const kernels =
    "cuda_attention_matches cuda_attention_waits cuda_copy_pages cuda_embed cuda_gather cuda_kv_fp8 cuda_add_norm cuda_rope cuda_sample_does cuda_sample_reports cuda_gate cuda_cap cuda_router cuda_experts cuda_gemm_experts";
  const inBoth = `emulator_ runtime_ cuda_attention_does_not_depend_on_timing cuda_cublaslt ${kernels}`;
  const program = join("cuda", "bunting_emulator_tests");
  const driver = join("cuda", "bunting_cuda_driver_tests");
  return [
    sanitizedTest("address", "CUDA driver calls, on a fake", driver, "cuda_driver"),
    sanitizedTest("thread", "CUDA driver calls, on a fake", driver, "cuda_driver"),
    sanitizedTest(
      "address",
      "CUDA kernels, emulated",
      program,
      `${inBoth} cuda_attention_does_not_depend_on_the_plan cuda_attention_notices cuda_formats cuda_forward cuda_gemm`,
    ),
    sanitizedTest(
      "thread",
      "CUDA kernels, emulated",
      program,
      `${inBoth} thread_sanitizer cuda_forward_agrees cuda_forward_takes cuda_gemm_few cuda_gemm_many cuda_gemm_formats cuda_gemm_waits`,
    ),
  ];
}

/**
 * Processors that qemu emulates, with the words of their tests. The first one has USMMLA, the second SDOT
 * alone; both test the kernels without them too. The third one has neither.
 */
const ARM_PROCESSORS = {
  max: "dispatch_ gemm_matches_reference gemm_by gemm_of_the_largest grouped_ peak_ reading_ quantise_matches attention_matches_reference_in_chunks",
  "neoverse-n1": "dispatch_ gemm_by gemm_of_the_largest grouped_ peak_",
  "cortex-a53": "dispatch_ gemm_by grouped_ peak_ reading_",
};

/** Tests of the CPU kernels on ARM, cross-compiled and emulated (Debian: g++-aarch64-linux-gnu, qemu-user). */
export function armTests() {
  const folder = join(root, "build", "arm");
  return Object.entries(ARM_PROCESSORS).map(([processor, words]) => ({
    name: `native tests, ARM (${processor}) emulated`,
    run: async () => {
      const [compiler, emulator] = ["aarch64-linux-gnu-g++", "qemu-aarch64"].map(commandPath);
      if (compiler === undefined || emulator === undefined) {
        console.log("Left out: kernels on ARM: aarch64-linux-gnu-g++ or qemu-aarch64 is missing.");
        return { passed: 0, failed: 0, skipped: 1 };
      }
      const options = ["NAME=Linux", "PROCESSOR=aarch64"].map((option) => `-DCMAKE_SYSTEM_${option}`);
      await buildNative(["bunting_tests"], {
        folder,
        options: [...options, `-DCMAKE_CXX_COMPILER=${compiler}`],
        how: " for ARM",
      });
      const command = [emulator, "-cpu", processor, "-L", "/usr/aarch64-linux-gnu"];
      return await nativeParts([...command, join(folder, "bunting_tests")], words.split(" "));
    },
  }));
}

/** Path of a command; undefined if there is none. */
function commandPath(name) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.map((folder) => join(folder, name)).find(existsSync);
}

/** Sanitizer builds with their instruction sets. */
const SANITIZERS = {
  address: { flags: "address,undefined", levels: "portable;avx2;avx512_bf16" },
  thread: { flags: "thread", levels: "portable;avx2" },
};

/** Tests of a program whose names contain one of the words. */
function sanitizedTest(kind, title, program, words) {
  const folder = join(root, "build", kind);
  const { flags, levels } = SANITIZERS[kind];
  const options = [`-DBUNTING_SANITIZE=${flags}`, `-DBUNTING_LEVELS=${levels}`];
  const { name, run } = nativeProgram(`${title}, ${kind} sanitizer`, program, folder, words.split(" "));
  return {
    name,
    run: async () => {
      await buildNative([basename(program)], { folder, options, how: ` for the ${kind} sanitizer` });
      return await run();
    },
  };
}

/**
 * Checks that no CUDA kernel spills registers on any GPU, and that docs/reference/gpu-kernels.md is up to
 * date. Compiles only changed kernels; the first time takes minutes.
 */
export function registerCheck() {
  return {
    name: "registers of the CUDA kernels",
    run: async () => {
      const { skipped, problem, seen } = await checkRegisters();
      if (problem !== null) return broken(problem);
      if (skipped) console.log(`Left out: registers and spills of the CUDA kernels: ${seen}.`);
      return { passed: skipped ? 0 : 1, failed: 0, skipped: skipped ? 1 : 0 };
    },
  };
}

/** Checks that no CUDA kernel has more instructions on Hopper than its budget, after registerCheck has compiled them. */
export function instructionCheck() {
  return {
    name: "instructions of the CUDA kernels",
    run: async () => {
      const { skipped, exceeding } = await checkInstructions();
      if (skipped !== null) console.log(`Left out: instructions of the CUDA kernels: ${skipped}.`);
      else if (exceeding.length > 0) return broken(exceeding.join("\n"));
      return { passed: skipped === null ? 1 : 0, failed: 0, skipped: skipped === null ? 0 : 1 };
    },
  };
}

/**
 * Program of csrc/tests/test.h with words that select its tests (none: all); each worker runs a part of them.
 */
function nativeProgram(name, program, folder = nativeBuild, words = []) {
  return { name, run: async () => await nativeParts([join(folder, program)], words) };
}

/** Runs the selected tests of a program, each worker a part of them. */
async function nativeParts([program, ...args], words) {
  const runPart = (_, part) => runNative(program, [...args, `--part=${part}/${workers}`, ...words]);
  return sum(await Promise.all(Array.from({ length: workers }, runPart)));
}

async function runNative(program, args) {
  const { code, stdout, stderr } = await run(program, args);
  const last = stdout.trimEnd().split("\n").at(-1) ?? "";
  const counts = parseSummary(last);
  if (counts === null || (code !== 0 && counts.failed === 0)) {
    return broken(`${program} ended with exit code ${code} and no summary line\n${stdout}${stderr}`);
  }
  if (counts.failed > 0) process.stdout.write(`${stdout}${stderr}`);
  return counts;
}

export function deviceTests() {
  return bunTests("device tests (CPU)", ["tests/device"]);
}

export function endToEndTests() {
  return bunTests("end-to-end tests", ["tests/e2e"]);
}

function check(name, command, args) {
  return {
    name,
    run: async () => {
      const { code, stdout, stderr } = await run(command, args);
      if (code === 0) return { passed: 1, failed: 0, skipped: 0 };
      return broken(`${stdout}${stderr}`);
    },
  };
}

/** Runs every property on `times` times as many cases as usual. */
export function propertyTests(times) {
  const files = [...NULL_PATHS, "tests/device"]
    .flatMap((path) => testFiles(join(root, path)))
    .filter((file) => readFileSync(file, "utf8").includes('support/property.ts"'));
  const options = { timeoutMs: times * TEST_TIMEOUT_MS, env: { PROPERTY_TIMES: String(times) } };
  return bunTests(`properties, ${times} times the cases`, files, options);
}

/** Runs `bun test` over the given paths, files in parallel; it prints its counts to stderr. */
function bunTests(name, paths, { timeoutMs = TEST_TIMEOUT_MS, env = {} } = {}) {
  return {
    name,
    run: async () => {
      const files = paths.flatMap((path) => testFiles(resolve(root, path)));
      if (files.length === 0) return broken(`no test file under ${paths.join(", ")}`);
      const args = [
        "test",
        "--only-failures",
        `--parallel=${workers}`,
        "--no-isolate",
        `--timeout=${timeoutMs}`,
        ...files,
      ];
      const { code, stderr } = await run(bun, args, { show: true, env });
      const counts = parseBunTest(stderr);
      if (counts === null) return broken(`bun test ended with exit code ${code} and no summary`);
      return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
    },
  };
}

/** Counts in the closing lines of `bun test`; null if the run ended before them. */
export function parseBunTest(stderr) {
  if (!/^Ran \d+ tests? across \d+ files?\./m.test(stderr)) return null;
  const count = (word) => Number(new RegExp(`^ *(\\d+) ${word}s?$`, "m").exec(stderr)?.[1] ?? 0);
  return {
    passed: count("pass"),
    failed: count("fail") + count("error"),
    skipped: count("skip") + count("todo"),
  };
}

/** Counts in "N passed, N failed" or "N passed, N failed, N skipped"; null for any other line. */
export function parseSummary(line) {
  const match = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/.exec(line.trim());
  if (match === null) return null;
  return { passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3] ?? 0) };
}

/** Last line of a run. */
export function summary({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

function broken(text) {
  console.log(text.trimEnd());
  return { passed: 0, failed: 1, skipped: 0 };
}

/** Runs groups in order, prints outcome and time of each, and returns the sum. */
export async function runGroups(groups) {
  const all = [];
  for (const group of groups) {
    const startedMs = performance.now();
    const counts = await group.run();
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
    console.log(`${counts.failed > 0 ? "FAIL" : "ok  "} ${group.name}: ${summary(counts)} (${seconds} s)`);
    all.push(counts);
  }
  return sum(all);
}

function sum(all) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const counts of all) for (const key of Object.keys(total)) total[key] += counts[key];
  return total;
}

/** Runs a command in the project root; `show` forwards its stderr. */
function run(command, args, { show = false, env = {} } = {}) {
  return new Promise((resolve) => {
    const options = { cwd: root, stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } };
    const child = spawn(command, args, options);
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (bytes) => {
      stdout += bytes;
    });
    child.stderr.on("data", (bytes) => {
      stderr += bytes;
      if (show) process.stdout.write(bytes);
    });
    child.on("error", (error) => resolve({ code: 127, stdout, stderr: `${command}: ${error.message}` }));
    child.on("close", (code, signal) => {
      if (signal) stderr += `\n${command} was ended by ${signal}\n`;
      resolve({ code: code ?? 1, stdout, stderr });
    });
  });
}

/** Test files of a folder, or the file itself, as literal paths for Bun. */
function testFiles(path) {
  return path.endsWith(".ts") ? (existsSync(path) ? [path] : []) : sourceFiles(path, /\.test\.ts$/);
}

function sourceFiles(folder, pattern) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && pattern.test(entry.name))
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

// The groups of checks and tests, each one command, and how to read what it counted.

import { spawn } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { bun, nativeBuild, root } from "./setup.mjs";

/** A test that takes longer hangs. Far above what any takes, since machines are slow and busy at times. */
const TEST_TIMEOUT_MS = 60_000;

/** Where Bun tests that need no device and no socket live: beside the code, and the rules of the tree. */
const NULL_PATHS = ["scheduler", "gpu", "server", "tools", "benchmarks", "tests/tidy.test.ts"];

/** Format, lint, types: one count each. */
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

/** The CUDA kernels, executed by the emulator. */
export function emulatorTests() {
  return nativeProgram("CUDA kernels, emulated", join("cuda", "bunting_emulator_tests"));
}

/** A program of csrc/tests/test.h. */
function nativeProgram(name, program) {
  return {
    name,
    run: async () => {
      const { code, stdout, stderr } = await run(join(nativeBuild, program), []);
      const last = stdout.trimEnd().split("\n").at(-1) ?? "";
      const counts = parseSummary(last);
      if (counts === null || (code !== 0 && counts.failed === 0)) {
        return broken(`${program} ended with exit code ${code} and no summary line\n${stdout}${stderr}`);
      }
      if (counts.failed > 0) process.stdout.write(`${stdout}${stderr}`);
      return counts;
    },
  };
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

/** `bun test` over the given paths; its counts are on stderr. */
function bunTests(name, paths) {
  return {
    name,
    run: async () => {
      const files = paths.flatMap((path) => testFiles(join(root, path)));
      if (files.length === 0) return broken(`no test file under ${paths.join(", ")}`);
      const { code, stderr } = await run(
        bun,
        ["test", "--only-failures", `--timeout=${TEST_TIMEOUT_MS}`, ...files],
        { show: true },
      );
      const counts = parseBunTest(stderr);
      if (counts === null) return broken(`bun test ended with exit code ${code} and no summary`);
      return code !== 0 && counts.failed === 0 ? { ...counts, failed: 1 } : counts;
    },
  };
}

/** Counts of `bun test` from its closing lines; null when the run ended before them. */
export function parseBunTest(stderr) {
  if (!/^Ran \d+ tests? across \d+ files?\./m.test(stderr)) return null;
  const count = (word) => Number(new RegExp(`^ *(\\d+) ${word}s?$`, "m").exec(stderr)?.[1] ?? 0);
  return {
    passed: count("pass"),
    failed: count("fail") + count("error"),
    skipped: count("skip") + count("todo"),
  };
}

/** Counts from "N passed, N failed" or "N passed, N failed, N skipped"; null for anything else. */
export function parseSummary(line) {
  const match = /^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$/.exec(line.trim());
  if (match === null) return null;
  return { passed: Number(match[1]), failed: Number(match[2]), skipped: Number(match[3] ?? 0) };
}

/** The line that ends a run. */
export function summary({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}

function broken(text) {
  console.log(text.trimEnd());
  return { passed: 0, failed: 1, skipped: 0 };
}

/** Runs groups one after another, tells each one's outcome and time, and returns the sum. */
export async function runGroups(groups) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const group of groups) {
    const startedMs = performance.now();
    const counts = await group.run();
    const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
    console.log(`${counts.failed > 0 ? "FAIL" : "ok  "} ${group.name}: ${summary(counts)} (${seconds} s)`);
    for (const key of Object.keys(total)) total[key] += counts[key];
  }
  return total;
}

/** Runs a command in the project root; `show` copies its standard error here as it comes. */
function run(command, args, { show = false } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
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

/** Test files of a folder, or the file itself, as paths that Bun takes literally. */
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

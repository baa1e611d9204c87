import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseBunTest, parseSummary, summary } from "./groups.mjs";

describe("counts of bun test", () => {
  test("are read from its closing lines", () => {
    const stderr =
      "a.test.ts:\n\n 13 pass\n 2 skip\n 1 todo\n 3 fail\n 13 expect() calls\nRan 19 tests across 3 files. [331.00ms]\n";
    expect(parseBunTest(stderr)).toEqual({ passed: 13, failed: 3, skipped: 3 });
  });

  test("count a file that could not be loaded as a failure", () => {
    const stderr = " 0 pass\n 1 fail\n 1 error\nRan 1 test across 1 file. [3.00ms]\n";
    expect(parseBunTest(stderr)).toEqual({ passed: 0, failed: 2, skipped: 0 });
  });

  test("are nothing when the run ended before them", () => {
    expect(parseBunTest(" 5 pass\n 0 fail\n")).toBeNull();
  });
});

test("a summary line is read back as it was written", () => {
  for (const counts of [
    { passed: 7, failed: 0, skipped: 0 },
    { passed: 0, failed: 2, skipped: 5 },
  ]) {
    expect(parseSummary(summary(counts))).toEqual(counts);
  }
  expect(summary({ passed: 7, failed: 0, skipped: 0 })).toBe("7 passed, 0 failed");
  expect(parseSummary("7 passed")).toBeNull();
});

test("set-up says in one sentence what the machine lacks", async () => {
  const node = Bun.which("node");
  if (node === null) throw new Error("this test needs node, as npm does");
  const path = mkdtempSync(join(tmpdir(), "bunting-path-"));
  try {
    symlinkSync(node, join(path, "node"));
    const script = resolve(import.meta.dir, "run.cjs");
    const setup = Bun.spawn([node, script, "setup"], { env: { PATH: path }, stdout: "pipe", stderr: "pipe" });
    expect(await setup.stderr.text()).toBe(
      "cmake is missing: install it (Debian: apt install cmake g++) and try again.\n",
    );
    expect(await setup.exited).toBe(1);
  } finally {
    rmSync(path, { recursive: true });
  }
});

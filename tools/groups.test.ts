import { describe, expect, test } from "bun:test";
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

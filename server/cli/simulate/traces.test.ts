/** Workloads by name, with and without traces. */

import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { openWorkload, traceFiles, tracesFolder, workloadNames } from "./traces.ts";

const options = { seed: 1, callsPerSecond: null, calls: null };

test("without traces every workload but the logged run is drawn", () => {
  for (const name of workloadNames.filter((name) => name !== "vllm-log")) {
    const { make, source } = openWorkload(name, null, { ...options, calls: 5 });
    expect(source).toBe("drawn from published statistics");
    expect(make().next()!.promptTokens().length).toBeGreaterThan(0);
  }
  expect(() => openWorkload("vllm-log", null, options)).toThrow("it needs llmservingsim");
  expect(() => openWorkload("constructor", null, options)).toThrow("There is no workload constructor");
  expect(() => tracesFolder("/nowhere")).toThrow("There is no folder of traces at /nowhere.");
});

test("a trace is taken where it is, and a rate spreads its calls", () => {
  const folder = mkdtempSync(join(tmpdir(), "bunting-traces-"));
  try {
    const path = join(folder, traceFiles.azure);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, "TIMESTAMP,a,b\n2023-11-16 10:00:00.0,7,3\n2023-11-16 10:00:04.0,8,4\n");
    const { make, source } = openWorkload("azure-code", folder, { ...options, callsPerSecond: 0.5 });
    expect(source).toBe(traceFiles.azure);
    const workload = make();
    expect([workload.next()!.atMs, workload.next()!.atMs, workload.next()]).toEqual([0, 2000, null]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

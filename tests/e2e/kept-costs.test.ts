/**
 * The program keeps its measured step costs beside the packed weights, and starts whatever happened to that
 * file.
 */

import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

const packed = mkdtempSync(join(tmpdir(), "bunting-served-costs-"));
afterAll(() => rmSync(packed, { recursive: true }));

/** Serves two engines until each has answered a request; returns the kept costs. */
async function served(): Promise<string> {
  const args = ["serve", "--device", "cpu:2", "--threads", "2", "--port", "0", "--packed-weights", packed];
  const program = Program.bunting(args);
  const url = await program.url();
  const ask = async (content: string): Promise<void> => {
    const body = JSON.stringify({ model: "demo", messages: [{ role: "user", content }], max_tokens: 4 });
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${url}/v1/chat/completions`, { method: "POST", body, headers });
    expect(response.status).toBe(200);
  };
  await Promise.all([ask("Who are you?"), ask("What is 2 plus 3?")]);
  program.signal("SIGTERM");
  expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  const files = readdirSync(packed).filter((name) => name.includes(".bunting-costs"));
  expect(files).toHaveLength(1);
  return join(packed, files[0]!);
}

test("a start without the file writes it, and one that finds it damaged writes another", async () => {
  const path = await served();
  expect(JSON.parse(readFileSync(path, "utf8")).costs.stepMs).toBeGreaterThan(0);
  for (const damaged of ["", readFileSync(path, "utf8").replace('"stepMs":', '"stepMs":1')]) {
    writeFileSync(path, damaged);
    expect(await served()).toBe(path);
    expect(readFileSync(path, "utf8")).not.toBe(damaged);
    expect(JSON.parse(readFileSync(path, "utf8")).costs.stepMs).toBeGreaterThan(0);
  }
}, 60_000);

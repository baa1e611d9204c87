/** Whole program with two CPU engines on one copy of the embedded model, with a target and a recording. */

import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-two-engines-"));
const recording = join(scratch, "recording");
let program: Program;
let url: string;

beforeAll(async () => {
  program = Program.bunting([
    ...["serve", "--device", "cpu:2", "--threads", "2", "--port", "0"],
    ...["--tbt-ms", "100", "--record", recording],
  ]);
  url = await program.url();
}, 60_000);
afterAll(() => rmSync(scratch, { recursive: true }));

async function answerTo(content: string): Promise<string> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    body: JSON.stringify({
      model: "demo",
      messages: [{ role: "user", content }],
      temperature: 0,
      max_tokens: 24,
    }),
    headers: { "content-type": "application/json" },
  });
  expect(response.status).toBe(200);
  const body = (await response.json()) as { choices: { message: { content: string } }[] };
  return body.choices[0]!.message.content;
}

test("answers are the same alone and in a crowd on both engines, and the recording repeats", async () => {
  const questions = Array.from(
    { length: 16 },
    (_, i) => `What is ${i} plus ${i % 5}? ${"Think. ".repeat(i)}`,
  );
  const alone: string[] = [];
  for (const question of questions) alone.push(await answerTo(question));
  const crowd = [...questions, ...questions, ...questions];
  expect(await Promise.all(crowd.map(answerTo))).toEqual([...alone, ...alone, ...alone]);

  const metrics = await (await fetch(`${url}/metrics`)).text();
  for (const engine of [0, 1]) {
    const steps = new RegExp(`^bunting_steps_total\\{model_name="demo",engine="${engine}"\\} (\\d+)$`, "m");
    expect(Number(steps.exec(metrics)?.[1])).toBeGreaterThan(0);
  }
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);

  const replay = Program.bunting(["simulate", "--replay", recording]);
  expect([await replay.exitCode(), replay.errors]).toEqual([0, ""]);
  expect(replay.output).toContain("64 calls and ");
  expect(replay.output).toContain("Run again, the scheduler decides the same, step by step.");
}, 60_000);

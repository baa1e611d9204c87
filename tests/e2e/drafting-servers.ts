/** Servers with and without drafts side by side, and questions that all of them answer alike. */
import { afterAll, beforeAll, expect } from "bun:test";
import { rmSync } from "node:fs";
import type { Program } from "./program.ts";

/** Programs, and the address of each; both are empty before the tests begin. */
export interface Running {
  readonly programs: Program[];
  readonly urls: string[];
}

/** Starts servers before a file's tests. Ends them behind these, and then removes the folder of their models. */
export function sideBySide(folder: string, start: () => readonly Program[]): Running {
  const running: Running = { programs: [], urls: [] };
  beforeAll(async () => {
    running.programs.push(...start());
    running.urls.push(...(await Promise.all(running.programs.map((program) => program.url()))));
  });
  afterAll(async () => {
    for (const program of running.programs) program.signal("SIGTERM");
    for (const program of running.programs) expect(await program.exitCode()).toBe(0);
    rmSync(folder, { recursive: true });
  });
  return running;
}

/** Ways to ask. */
export const questions: readonly object[] = [
  { temperature: 0 },
  { temperature: 1, seed: 3 },
  { temperature: 1, seed: 4, top_p: 0.9, presence_penalty: 1, n: 3 },
  { temperature: 0, stop: ["zz"], max_tokens: 33 },
];

/** Choices of an answer. The times of the machine decide which drafts are checked. */
export async function choicesOf(url: string, more: object): Promise<unknown> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      ...{ prompt: [5, 40, 285, 200, 9, 77], max_tokens: 80, ignore_eos: true, logprobs: 1 },
      ...more,
    }),
  });
  expect(response.status).toBe(200);
  return ((await response.json()) as { readonly choices: unknown }).choices;
}

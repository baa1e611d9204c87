/** LoRA adapters on the CPU: answers are the same in company, and pages on disk are those of an adapter's contents. */

import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeAdapter } from "../support/adapter-folder.ts";
import { Program } from "./program.ts";
import { demoFolder } from "./server.ts";

setDefaultTimeout(120_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-adapters-cpu-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const [sql, law] = ["sql", "law"].map((name, index) => {
  const folder = join(scratch, name);
  writeAdapter(demoFolder, folder, { seed: index, rank: 4 + 8 * index, alpha: 8 });
  return folder;
}) as [string, string];

const content = "Tell me all that you know of birds, and of the trees that they live in. ".repeat(8);

interface Answer {
  readonly cached: number;
  /** Text and log probabilities. */
  readonly told: object;
}

async function ask(url: string, model: string): Promise<Answer> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      ...{ model, messages: [{ role: "user", content }], temperature: 0.7, seed: 1, max_tokens: 16 },
      ...{ logprobs: true, top_logprobs: 5, ignore_eos: true },
    }),
  });
  const { choices, usage } = (await response.json()) as {
    choices: [{ message: object; logprobs: object }];
    usage: { prompt_tokens_details: { cached_tokens: number } };
  };
  const [{ message, logprobs }] = choices;
  return { cached: usage.prompt_tokens_details.cached_tokens, told: { message, logprobs } };
}

async function served<Result>(adapters: readonly string[], use: (url: string) => Promise<Result>) {
  const program = Program.bunting([
    ...["serve", "--device", "cpu", "--port", "0", "--kv-disk", "1", "--data", join(scratch, "data")],
    ...adapters.flatMap((adapter) => ["--lora", adapter]),
  ]);
  try {
    return await use(await program.url());
  } finally {
    program.signal("SIGTERM");
    expect([await program.exitCode(), program.errors]).toEqual([0, ""]);
  }
}

test("each adapter answers as it does alone, in company, from its cache, and from disk after a restart", async () => {
  const models = ["demo", "sql", "law"];
  const answers = await served([`sql=${sql}`, `law=${law}`], async (url) => {
    const company = await Promise.all(models.map((model) => ask(url, model)));
    expect(company.map(({ cached }) => cached)).toEqual([0, 0, 0]);
    for (const [index, model] of models.entries()) {
      const again = await ask(url, model);
      expect(again.told).toEqual(company[index]!.told);
      expect(again.cached).toBeGreaterThan(100);
    }
    return new Map(models.map((model, index) => [model, company[index]!.told]));
  });
  expect(new Set([...answers.values()].map((told) => JSON.stringify(told))).size).toBe(3);

  // The name of one adapter is now the other's.
  await served([`sql=${law}`], async (url) => {
    const [swapped, own] = [await ask(url, "sql"), await ask(url, "demo")];
    expect(swapped.told).toEqual(answers.get("law")!);
    expect(own.told).toEqual(answers.get("demo")!);
    for (const { cached } of [swapped, own]) expect(cached).toBeGreaterThan(100);
  });
});

/** A model with a head that drafts tokens (multi-token prediction), as a user serves it on the CPU engine. */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFamily } from "../reference/families.ts";
import { learnByRote } from "../support/rote-model.ts";
import { Program } from "./program.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-head-e2e-"));
const folder = join(scratch, "glm4-moe");
writeFamily("glm4-moe", folder, {}, true);
learnByRote(folder, 0.4);

const serve = (path: string, speculate: string, device = "cpu"): Program =>
  Program.bunting([
    "serve",
    path,
    "--device",
    device,
    "--port",
    "0",
    "--threads",
    "1",
    "--speculate",
    speculate,
  ]);

let programs: readonly Program[];
let urls: readonly string[];
beforeAll(async () => {
  programs = ["off", "mtp", "auto"].map((speculate) => serve(folder, speculate));
  urls = await Promise.all(programs.map((program) => program.url()));
});
afterAll(async () => {
  for (const program of programs) program.signal("SIGTERM");
  for (const program of programs) expect(await program.exitCode()).toBe(0);
  rmSync(scratch, { recursive: true });
});

/** Choices of an answer. The times of the machine decide which drafts are checked. */
async function choicesOf(url: string, more: object): Promise<unknown> {
  const response = await fetch(`${url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      ...{ prompt: [5, 40, 285, 200, 9, 77], max_tokens: 60, ignore_eos: true, logprobs: 1 },
      ...more,
    }),
  });
  expect(response.status).toBe(200);
  return ((await response.json()) as { readonly choices: unknown }).choices;
}

test.each<object>([
  { temperature: 0 },
  { temperature: 1, seed: 3 },
  { temperature: 1, seed: 4, top_p: 0.9, presence_penalty: 1, n: 3 },
  { temperature: 0, stop: ["zz"], max_tokens: 33 },
])("an answer is the same with a head's drafts and without: %j", async (more) => {
  const [off, mtp, auto] = await Promise.all(urls.map((url) => choicesOf(url, more)));
  expect(mtp).toEqual(off);
  expect(auto).toEqual(off);
});

test.each([
  ["qwen2-yarn", "cpu", false, /qwen2 model, which has no head that drafts tokens; use --speculate auto/],
  ["glm4-moe", "cpu", false, /model\.layers\.3\.\S+: the tensor is missing; use --speculate auto/],
  ["mimo", "emu", true, /a GPU computes no head that drafts; use --device cpu or --speculate suffix/],
  ["mimo", "simulated", true, /the simulated device has no model, and so no head/],
] as const)("%s on %s cannot draft: --speculate mtp is refused", async (name, device, hasHead, reason) => {
  const path = join(scratch, `${name}-${device}-refused`);
  writeFamily(name, path, {}, hasHead);
  const program = serve(path, "mtp", device);
  expect(await program.exitCode()).not.toBe(0);
  expect(program.errors).toMatch(reason);
  expect(program.errors).toStartWith("--speculate mtp: ");
});

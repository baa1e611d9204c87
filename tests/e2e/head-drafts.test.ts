/** A model with a head that drafts tokens (multi-token prediction), as a user serves it on the CPU engine. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFamily } from "../reference/families.ts";
import { learnByRote } from "../support/rote-model.ts";
import { choicesOf, questions, sideBySide } from "./drafting-servers.ts";
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
    "--port",
    "0",
    "--threads",
    "1",
    "--device",
    device,
    "--speculate",
    speculate,
  ]);

const running = sideBySide(scratch, () =>
  ["off", "mtp", "auto"].map((speculate) => serve(folder, speculate)),
);

test.each(questions)("an answer is the same with a head's drafts and without: %j", async (more) => {
  const [off, mtp, auto] = await Promise.all(running.urls.map((url) => choicesOf(url, more)));
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

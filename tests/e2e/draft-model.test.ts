/** A model with a draft model beside it, as a user serves them on the CPU engine. */
import { expect, setDefaultTimeout, test } from "bun:test";
import { cpSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { writeFamily } from "../reference/families.ts";
import { learnByRote } from "../support/rote-model.ts";
import { choicesOf, questions, sideBySide } from "./drafting-servers.ts";
import { Program } from "./program.ts";

setDefaultTimeout(90_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-draft-model-e2e-"));
const folderOf = (name: string): string => join(scratch, name);
const [target, draft, recording] = [folderOf("target"), folderOf("draft"), folderOf("recording")];
writeFamily("mimo", target);
writeFamily("qwen2-yarn", draft, { num_hidden_layers: 1 });
for (const folder of [target, draft]) learnByRote(folder, 0.4);

const command = (name: string, options: readonly string[], path = target): Program =>
  Program.bunting([name, path, "--port", "0", "--threads", "1", "--kv-cache-gib", "0.1", ...options]);
const serve = (options: readonly string[], path = target): Program => command("serve", options, path);
const cpu = ["--device", "cpu"];
const drafting = [...cpu, "--draft-model", draft];

const running = sideBySide(scratch, () => [
  serve([...cpu, "--speculate", "off"]),
  serve([...drafting, "--speculate", "draft", "--record", recording]),
  serve([...drafting, "--kv", "int8"]),
  serve([...cpu, "--speculate", "off", "--kv", "int8"]),
]);

test.each(questions)("an answer is the same with a draft model and without: %j", async (more) => {
  const [off, drafted, auto, plain] = await Promise.all(running.urls.map((url) => choicesOf(url, more)));
  expect(drafted).toEqual(off);
  expect(auto).toEqual(plain);
});

test("a recorded server with a draft model repeats", async () => {
  const [url, program] = [running.urls[1]!, running.programs[1]!];
  await Promise.all([1, 2, 3].map((seed) => choicesOf(url, { temperature: 1, seed, n: 2 })));
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  const replay = Program.bunting(["simulate", "--replay", recording]);
  expect([await replay.exitCode(), replay.errors]).toEqual([0, ""]);
  expect(replay.output).toContain("Run again, the scheduler decides the same, step by step.");
});

test("doctor names the draft model and its bytes", async () => {
  const doctor = command("doctor", drafting);
  await doctor.exitCode();
  expect(doctor.output).toMatch(/^draft model {5}draft, qwen2 in bf16$/m);
  expect(doctor.output).toMatch(
    /^draft model +[\d.]+ KiB {2}weights; its keys and values are 25 % of the KV cache$/m,
  );
});

/** The draft model with another text for a token. */
function withOtherToken(token: number): string {
  const folder = folderOf(`other-${token}`);
  cpSync(draft, folder, { recursive: true });
  const file = join(folder, "tokenizer.json");
  const json = JSON.parse(readFileSync(file, "utf8"));
  const [text] = Object.entries(json.model.vocab).find(([, id]) => id === token)!;
  delete json.model.vocab[text];
  json.model.vocab[`${text}other`] = token;
  writeFileSync(file, JSON.stringify(json));
  return folder;
}

const refused = (path: string, reason: string): string => `--draft-model ${path}: ${reason}`;
const lfm2 = folderOf("lfm2");
writeFamily("lfm2", lfm2);

test.each<[readonly string[], string | RegExp]>([
  [
    [...cpu, "--speculate", "draft"],
    /^--speculate draft: no draft model is named; give one with --draft-model/,
  ],
  [[...drafting, "--speculate", "off"], /^--draft-model goes with --speculate auto or draft, not with off/],
  [
    ["--device", "emu", "--draft-model", draft],
    refused(draft, "a GPU computes no draft model; use --device cpu"),
  ],
  [
    ["--device", "simulated", "--draft-model", draft],
    refused(draft, "the simulated device computes no model, and so none that drafts"),
  ],
  [[...cpu, "--draft-model", lfm2], refused(lfm2, "models of the family lfm2 have recurrent states")],
  [
    [...cpu, "--draft-model", folderOf("none")],
    refused(folderOf("none"), "does not exist; wanted: a Hugging Face folder"),
  ],
])("%p is refused", async (options, reason) => {
  const program = serve(options);
  expect(await program.exitCode()).not.toBe(0);
  if (typeof reason === "string") expect(program.errors).toStartWith(reason);
  else expect(program.errors).toMatch(reason);
});

test("a draft model of another vocabulary is refused by its first token that differs", async () => {
  const other = withOtherToken(290);
  const program = serve([...cpu, "--draft-model", other]);
  expect(await program.exitCode()).not.toBe(0);
  expect(program.errors).toMatch(
    /its token 290 is ".+other", and the model's is ".+"; a draft model has the/,
  );
  expect(program.errors).toStartWith(`--draft-model ${other}: `);
});

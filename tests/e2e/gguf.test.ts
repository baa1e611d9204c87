/**
 * GGUF file in place of a folder: the same commands serve it, chat with it and examine it, with the same
 * answers.
 */

import { afterAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { demoCutAsSmolLm } from "../support/demo-variants.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { Program } from "./program.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-gguf-e2e-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const folder = demoCutAsSmolLm(join(scratch, "demo"));
const file = join(scratch, "demo-bf16.gguf");
writeFileSync(file, ggufBytes(convertModel(folder, { type: "BF16", pre: "smollm", name: "Bunting demo" })));

/** Returns a greedy answer, and the tokens of a text long enough for the encoder thread. */
async function answersOf(url: string): Promise<unknown[]> {
  const post = async (path: string, body: object): Promise<Record<string, unknown>> => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
    return (await response.json()) as Record<string, unknown>;
  };
  const messages = [{ role: "user", content: "Who are you?" }];
  const { choices, usage } = await post("/v1/chat/completions", { messages, temperature: 0, max_tokens: 24 });
  const { tokens } = await post("/tokenize", { content: "The bunting sings, 小鳥 too. ".repeat(600) });
  return [(choices as { message: unknown }[])[0]!.message, usage, tokens];
}

async function served(model: string): Promise<{ names: string[]; answers: unknown[] }> {
  const program = Program.bunting(["serve", model, "--port", "0", "--kv-cache-gib", "0.1"]);
  const url = await program.url();
  const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: { id: string }[] };
  const answers = await answersOf(url);
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  return { names: data.map(({ id }) => id), answers };
}

test("a file is served under its own name and answers as the folder does", async () => {
  const fromFile = await served(file);
  const fromFolder = await served(folder);
  expect(fromFile.names).toEqual(["Bunting-demo"]);
  expect(fromFolder.names).toEqual(["demo"]);
  expect(fromFile.answers).toEqual(fromFolder.answers);
});

test("doctor says what is in a file", async () => {
  const program = Program.bunting(["doctor", file, "--port", "0"]);
  expect(await program.exitCode()).toBe(0);
  expect(program.output).toMatch(/^model +Bunting-demo: qwen3, \d+ layers, hidden \d+, vocabulary \d+,/m);
});

describe("a file that cannot be served is refused in one sentence", () => {
  const cut = join(scratch, "cut.gguf");
  writeFileSync(cut, ggufBytes(convertModel(folder, { type: "BF16", pre: "smollm" })));
  truncateSync(cut, 1_000_000);
  const foreign = join(scratch, "foreign.gguf");
  writeFileSync(foreign, ggufBytes(convertModel(folder, { type: "BF16", pre: "of-nobody" })));

  test.each([
    [
      "one that ends early",
      cut,
      /cut\.gguf: \S+: takes bytes \d+ to \d+ of a file of 1000000; is the file complete\?\n$/,
    ],
    [
      "one with a tokenizer that is not known",
      foreign,
      /foreign\.gguf: tokenizer\.ggml\.pre: "of-nobody": how .*\n$/,
    ],
    ["one that is not there", join(scratch, "none.gguf"), /none\.gguf: does not exist\n$/],
  ])("%s", async (_, model, sentence) => {
    const program = Program.bunting(["serve", model, "--port", "0", "--kv-cache-gib", "0.1"]);
    expect(await program.exitCode()).toBe(1);
    expect(program.errors).toMatch(sentence);
    expect(program.errors.trim().split("\n")).toHaveLength(1);
  });
});

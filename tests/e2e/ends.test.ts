/** Ends of answers that only a tokenizer, or the text of a token, tells of. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { demoCutAsSmolLm } from "../support/demo-variants.ts";
import { convertModel } from "../support/gguf-model.ts";
import { ggufBytes } from "../support/gguf-writer.ts";
import { Program } from "./program.ts";

setDefaultTimeout(60_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-ends-"));
afterAll(() => rmSync(scratch, { recursive: true }));

/** The token <|im_end|> of the demo model, which its tokenizer names as the end, and its other end. */
const [turnEnd, textEnd] = [2, 0];

/** The demo model, whose configuration names the end of a text alone. */
function madeFolder(): string {
  const dir = demoCutAsSmolLm(join(scratch, "demo"));
  for (const name of ["config.json", "generation_config.json"]) {
    const path = join(dir, name);
    const config = JSON.parse(readFileSync(path, "utf8")) as object;
    writeFileSync(path, JSON.stringify({ ...config, eos_token_id: textEnd }));
  }
  return dir;
}

const folder = madeFolder();

/** The end of an answer that may have this token alone, and its tokens. */
async function endOf(model: string, token: number): Promise<unknown[]> {
  const program = Program.bunting(["serve", model, "--port", "0", "--kv-cache-gib", "0.1"]);
  try {
    const url = await program.url();
    const body = { messages: [{ role: "user", content: "Hi" }], max_tokens: 8, allowed_token_ids: [token] };
    const headers = { "content-type": "application/json" };
    const options = { method: "POST", headers, body: JSON.stringify(body) };
    const answer = (await (await fetch(`${url}/v1/chat/completions`, options)).json()) as {
      choices: { finish_reason: string }[];
      usage: { completion_tokens: number };
    };
    return [answer.choices[0]!.finish_reason, answer.usage.completion_tokens];
  } finally {
    program.signal("SIGKILL");
  }
}

test("the tokenizer's own end counts beside that of the configuration", async () => {
  expect(await endOf(folder, turnEnd)).toEqual(["stop", 1]);
});

test("an end of a turn counts in a file that names the end of a text alone", async () => {
  const { entries, tensors } = convertModel(folder, { type: "BF16", pre: "smollm", name: "demo" });
  const phi = entries.map((entry): typeof entry => {
    const [key, type, value] = entry;
    if (key !== "tokenizer.ggml.tokens") return entry;
    const tokens = [...(value as readonly string[])];
    tokens[turnEnd] = "<|end|>";
    return [key, type, tokens] as typeof entry;
  });
  const named = phi.filter(([key]) => !/\.(eos|eot)_token_id$/.test(key));
  const file = join(scratch, "phi.gguf");
  const eos: (typeof entries)[number] = ["tokenizer.ggml.eos_token_id", "u32", textEnd];
  writeFileSync(file, ggufBytes({ entries: [...named, eos], tensors }));
  expect(await endOf(file, turnEnd)).toEqual(["stop", 1]);
});

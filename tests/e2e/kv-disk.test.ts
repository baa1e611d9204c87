/** Prefixes on disk, as a user has them: they outlive `kill -9`, and change no bit of an answer. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { JsonObject } from "../../model/json.ts";
import { writeFamily } from "../reference/families.ts";
import { familyConfigs } from "../reference/family-configs.ts";
import { Program } from "./program.ts";

setDefaultTimeout(120_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-served-pages-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

interface Message {
  readonly role: "user" | "assistant";
  readonly content: string;
}

interface Answer {
  /** Header with the account of the prefix cache. */
  readonly cache: string;
  readonly choices: readonly [
    { readonly message: { readonly content: string }; readonly logprobs: { readonly content: unknown[] } },
  ];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
}

async function ask(url: string, messages: readonly Message[], key = "a"): Promise<Answer> {
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${key}` },
    body: JSON.stringify({
      ...{ model: "demo", messages, temperature: 0.7, seed: 1, max_tokens: 24 },
      ...{ logprobs: true, top_logprobs: 5, ignore_eos: true },
    }),
  });
  expect(response.status).toBe(200);
  const cache = response.headers.get("x-bunting-cache") ?? "";
  return { cache, ...((await response.json()) as Omit<Answer, "cache">) };
}

const authorised = { headers: { authorization: "Bearer admin" } };

function serve(...args: string[]): Program {
  const usual = ["serve", "--device", "cpu", "--port", "0", "--threads", "1"];
  return Program.bunting([...usual, "--api-key", "a", "--api-key", "b", "--admin-key", "admin", ...args]);
}

async function stopped(program: Program): Promise<string> {
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
  return program.errors;
}

/** Waits until the files of the only engine have so many pages (server/kv-disk/segment.ts). */
async function pagesOnDisk(root: string, least: number): Promise<void> {
  const pagesIn = (file: string): number => {
    const header = readFileSync(file).subarray(0, 16);
    if (header.length < 16) return 0;
    const blocks = 1 + Math.ceil((header.readUInt32LE(8) * 88) / 4096);
    return Math.floor((statSync(file).size - blocks * 4096) / header.readUInt32LE(12));
  };
  for (;;) {
    const files = readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) =>
      name.endsWith(".kv"),
    );
    if (files.reduce((sum, name) => sum + pagesIn(join(root, name)), 0) >= least) return;
    await Bun.sleep(10); // no event tells that another process has written
  }
}

/** Pieces of a state of the tiny model. */
const STATE_PAGES = 4;
const first: Message = { role: "user", content: "Tell me all that you know of birds. ".repeat(40) };

/** Folder of a tiny model with recurrent layers, and a context for `first`. */
function recurrentModel(): string {
  const folder = join(scratch, "recurrent");
  const text = familyConfigs["qwen3-5"]!.text_config as JsonObject;
  writeFamily("qwen3-5", folder, { text_config: { ...text, max_position_embeddings: 4096 } });
  return folder;
}

test.each([
  ["attention alone", () => [], 0],
  ["recurrent states", () => [recurrentModel(), "--served-model-name", "demo"], STATE_PAGES],
] as const)(
  "after kill -9 a conversation of a model with %s goes on from its prefix, with the bits of a cold server",
  async (name, model, statePages) => {
    const data = join(scratch, name);
    const root = join(data, "kv");
    const args = model();
    const before = serve(...args, "--kv-disk", "1", "--data", data);
    const url = await before.url();
    const answer = await ask(url, [first]);
    const wholePages = Math.floor(answer.usage.prompt_tokens / 16);
    expect(wholePages).toBeGreaterThan(20);
    // The next turn, which the pages of this one are read by.
    const conversation: Message[] = [
      first,
      { role: "assistant", content: answer.choices[0].message.content },
      { role: "user", content: "And of bees?" },
    ];
    await pagesOnDisk(root, wholePages + statePages);
    before.signal("SIGKILL");
    await before.exitCode();
    const list = Program.bunting(["cache", "--data", data]);
    expect(await list.exitCode()).toBe(0);
    expect(list.output).toMatch(/^model +size +last use +where\ndemo +[1-9]/);

    const after = serve(...args, "--kv-disk", "1", "--data", data);
    const again = await ask(await after.url(), conversation);
    expect(again.usage.prompt_tokens_details.cached_tokens).toBeGreaterThanOrEqual(16 * (wholePages - 1));
    expect(again.cache).toContain(`; disk=${again.usage.prompt_tokens_details.cached_tokens}; `);
    const metrics = await (await fetch(`${await after.url()}/metrics`, authorised)).text();
    expect(metrics).toMatch(/bunting_kv_disk_total\{engine="0",event="read"\} [1-9]/);
    expect(metrics).toMatch(/bunting_kv_disk_total\{engine="0",event="damaged"\} 0/);
    // Another key finds nothing.
    const other = await ask(await after.url(), conversation, "b");
    expect(other.usage.prompt_tokens_details.cached_tokens).toBe(0);
    expect(await stopped(after)).not.toContain("KV cache");

    const cold = serve(...args, "--kv-disk", "0", "--data", "off");
    const expected = await ask(await cold.url(), conversation);
    expect(expected.usage.prompt_tokens_details.cached_tokens).toBe(0);
    expect(again.choices).toEqual(expected.choices);
    expect(other.choices).toEqual(expected.choices);
    await stopped(cold);
  },
);

test("after any damage to the files an answer has the same bits, and the trouble is said once", async () => {
  const data = join(scratch, "damaged");
  const root = join(data, "kv");
  const before = serve("--kv-disk", "1", "--data", data);
  const expected = await ask(await before.url(), [first]);
  await pagesOnDisk(root, 20);
  before.signal("SIGKILL");
  await before.exitCode();
  for (const name of readdirSync(root, { recursive: true, encoding: "utf8" })) {
    if (!name.endsWith(".kv")) continue;
    const bytes = readFileSync(join(root, name));
    for (let at = bytes.length - 1; at > bytes.length / 2; at -= 999) bytes[at]! ^= 4;
    writeFileSync(join(root, name), bytes);
  }
  const after = serve("--kv-disk", "1", "--data", data);
  const url = await after.url();
  expect((await ask(url, [first])).choices).toEqual(expected.choices);
  expect((await ask(url, [first])).choices).toEqual(expected.choices);
  expect((await stopped(after)).match(/KV cache on disk: .*/g)).toEqual([
    expect.stringMatching(/is damaged; its pages are checked and left out\.$/),
  ]);
});

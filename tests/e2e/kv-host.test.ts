/** Pages of a GPU in the host's memory, as a user has them: they come back after eviction, and change no bit of an answer. */
import { afterAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program } from "./program.ts";

setDefaultTimeout(300_000);

const scratch = mkdtempSync(join(tmpdir(), "bunting-served-host-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

/** Prompts that take each other's pages. */
const ROUNDS_MAX = 5;
const usual = ["serve", "--port", "0", "--max-model-len", "256", "--api-key", "a", "--api-key", "b"];
const authorised = (key: string) => ({ authorization: `Bearer ${key}`, "content-type": "application/json" });

interface Answer {
  readonly text: string;
  readonly cache: string;
  readonly found: object;
}

async function ask(url: string, prompt: string, key = "a"): Promise<Answer> {
  const body = JSON.stringify({ prompt, max_tokens: 4, temperature: 0, ignore_eos: true });
  const response = await fetch(`${url}/v1/completions`, { method: "POST", headers: authorised(key), body });
  expect(response.status).toBe(200);
  const { choices } = (await response.json()) as { choices: readonly [{ readonly text: string }] };
  const id = response.headers.get("x-request-id");
  const account = await fetch(`${url}/v1/requests/${id}/cache`, { headers: authorised(key) });
  const { prompts } = (await account.json()) as { prompts: readonly [{ readonly found: object }] };
  return { text: choices[0].text, cache: response.headers.get("x-bunting-cache")!, found: prompts[0].found };
}

/** Waits until an idle engine has nothing left to store. */
async function stored(url: string, least: number): Promise<void> {
  for (;;) {
    const metrics = await (await fetch(`${url}/metrics`, { headers: authorised("admin") })).text();
    if (Number(/bunting_tier_stored_pages_total\{.*\} (\d+)/.exec(metrics)?.[1] ?? 0) >= least) return;
    await Bun.sleep(10); // no event tells that another process has stored
  }
}

test("a prompt whose pages another took finds them in the host's memory, for its key alone", async () => {
  const host = ["--kv-cache-gib", "0.001", "--kv-host", "0.05", "--admin-key", "admin"];
  const program = Program.bunting([...usual, "--device", "emu", ...host]);
  const url = await program.url();
  expect(program.output).toContain("KV pages that leave the GPU are kept in 51.2 MiB of the host's memory, ");
  const bird = "The bird sings in the old tree by the lake. ".repeat(12);
  const bees = "Many bees fly over the field of red flowers. ".repeat(12);
  const first = await ask(url, bird);
  await stored(url, 12);
  await ask(url, bees);
  await stored(url, 24);
  let again = await ask(url, bird);
  // A load is made where it takes less time than the computation, whose time on this device the engine has to learn.
  for (let round = 0; round < ROUNDS_MAX && !again.cache.includes("host="); round += 1) {
    expect(again.text).toBe(first.text);
    await ask(url, bees);
    again = await ask(url, bird);
  }
  expect(again.text).toBe(first.text);
  const tokens = Number(/host=(\d+); /.exec(again.cache)?.[1] ?? 0);
  expect(tokens).toBeGreaterThanOrEqual(16);
  expect(again.found).toMatchObject({ host: tokens, disk: 0 });
  expect((await ask(url, bird, "b")).cache).toStartWith("hit=0 of ");
  // The engine tells its counts once a second at most, and with a turn.
  for (;;) {
    const metrics = await (await fetch(`${url}/metrics`, { headers: authorised("admin") })).text();
    expect(metrics).toMatch(/bunting_tier_host_pages_total\{.*engine="0"\} [1-9]/);
    if (/bunting_kv_host_total\{engine="0",event="read"\} [1-9]/.test(metrics)) break;
    await ask(url, bird);
  }
  program.signal("SIGTERM");
  expect(await program.exitCode()).toBe(0);
});

test.each([
  [
    "cpu",
    "1",
    "--kv-host 1: the pages of a CPU are in the host's memory already; --kv-cache-gib says how much",
  ],
  ["simulated", "1", "--kv-host 1: the simulated device has no pages to keep."],
  ["emu", "60000", "--kv-host 60000: 58.6 TiB are asked for, and "],
  ["emu", "0.00001", "--kv-host 0.00001: a page takes 48.0 KiB, more than an engine's share."],
])("on %s %s GiB are refused", async (device, size, sentence) => {
  const program = Program.bunting([...usual, "--device", device, "--kv-host", size]);
  expect(await program.exitCode()).not.toBe(0);
  expect(program.errors).toContain(sentence);
});

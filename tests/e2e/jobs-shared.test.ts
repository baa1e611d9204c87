/**
 * Batch jobs beside each other and beside online requests: their shares of the engines, and where the server
 * reports them.
 */

import { expect, test } from "bun:test";
import type OpenAI from "openai";
import { Browser, chromium } from "./browser.ts";
import { begin, clientOf, jobsServer } from "./jobs-server.ts";

/** Starts an engine with few running sequences, so that lines wait. */
const start = jobsServer({ spec: { stepChunksMax: 8 } });

/**
 * Starts a batch of `lines` lines with `words` words each, no two with a common beginning, and answers of 32
 * tokens.
 */
async function beginMany(
  client: OpenAI,
  lines: number,
  words: number,
  more: object = {},
): Promise<OpenAI.Batch> {
  const text = Array.from({ length: lines }, (_, index) => {
    const body = { prompt: `${index} sails`.repeat(words), max_tokens: 32, ignore_eos: true };
    return JSON.stringify({ custom_id: String(index), method: "POST", url: "/v1/completions", body });
  }).join("\n");
  return await begin(client, text, { endpoint: "/v1/completions", ...more });
}

async function hasCompleted(client: OpenAI, id: string, lines: number): Promise<OpenAI.Batch> {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (batch.request_counts!.completed >= lines) return batch;
  }
}

function tokensOf({ usage }: OpenAI.Batch): number {
  return usage!.input_tokens - usage!.input_tokens_details.cached_tokens + usage!.output_tokens;
}

test("jobs of two keys get as many tokens each, however long their lines are", async () => {
  const running = start({ stepMs: 2, keys: { keys: ["key-of-ann", "key-of-bob"] } });
  const [ann, bob] = [clientOf(running, "key-of-ann"), clientOf(running, "key-of-bob")];
  const long = await beginMany(bob, 150, 100);
  const { id } = await beginMany(ann, 200, 8);
  await running.jobs!.runner.ended(id);
  const short = await ann.batches.retrieve(id);
  const beside = await bob.batches.retrieve(long.id);
  expect([short.status, beside.status]).toEqual(["completed", "in_progress"]);
  const [ofAnn, ofBob] = [tokensOf(short), tokensOf(beside)];
  expect(ofBob).toBeGreaterThan(ofAnn / 2);
  expect(ofBob).toBeLessThan(2 * ofAnn);
  expect(beside.request_counts!.completed).toBeLessThan(100);
}, 60_000);

test("of one key's jobs the one with the lower number goes first", async () => {
  const running = start({ stepMs: 2 });
  const client = clientOf(running);
  const first = await beginMany(client, 300, 8);
  await hasCompleted(client, first.id, 1);
  const { id } = await beginMany(client, 100, 8, { priority: -1 });
  await hasCompleted(client, id, 1);
  const before = await client.batches.retrieve(first.id);
  await running.jobs!.runner.ended(id);
  const after = await client.batches.retrieve(first.id);
  expect(after.status).toBe("in_progress");
  // Lines that were already running when the other job came.
  expect(after.request_counts!.completed - before.request_counts!.completed).toBeLessThan(20);
}, 60_000);

test("what requests and what jobs computed is counted apart", async () => {
  const running = start();
  const client = clientOf(running);
  const { id } = await beginMany(client, 20, 8);
  const chat = await client.chat.completions.create({
    model: "demo",
    messages: [{ role: "user", content: "Hello." }],
    max_tokens: 5,
    seed: 1,
  });
  await running.jobs!.runner.ended(id);
  const { usage } = await client.batches.retrieve(id);
  const metrics = await (await fetch(`${running.origin}/metrics`)).text();
  const counted = (work: string, kind: string): number => {
    const line = metrics
      .split("\n")
      .find((line) => line.includes("work_tokens_total{") && line.includes(work) && line.includes(kind));
    return Number(line!.split(" ").at(-1));
  };
  const cached = usage!.input_tokens_details.cached_tokens;
  expect([counted("jobs", "prompt_computed"), counted("jobs", "prompt_cached")]).toEqual([
    usage!.input_tokens - cached,
    cached,
  ]);
  expect(counted("jobs", "generated")).toBe(usage!.output_tokens);
  expect(counted("requests", "generated")).toBe(chat.usage!.completion_tokens);
  const state = (await (await fetch(`${running.origin}/state`)).json()) as {
    readonly computed: { readonly requests: number; readonly jobs: number };
  };
  expect(state.computed.jobs).toBe(tokensOf({ usage } as OpenAI.Batch));
  expect(state.computed.requests).toBeGreaterThan(chat.usage!.completion_tokens);
});

test.skipIf(chromium === null)(
  "the page tells what jobs and requests have had",
  async () => {
    const running = start({ stepMs: 5 });
    const client = clientOf(running);
    await client.completions.create({ model: "demo", prompt: "Hello.", max_tokens: 40 });
    const { id } = await beginMany(client, 400, 8);
    const browser = await Browser.start(chromium!);
    const page = await browser.open(`${running.origin}/#live`);
    const tile = `document.querySelector(".tile:has([data-field=jobs])")`;
    const shares = "/^(\\d+) % of all tokens, requests (\\d+) %$/";
    const shown = (await page.when(
      `${shares}.exec(${tile}?.querySelector(".hint").textContent)?.slice(1).map(Number)`,
    )) as [number, number];
    expect(shown[0] + shown[1]).toBe(100);
    expect(await page.evaluate(`document.querySelector("[data-field=jobs]").textContent`)).toBe("1");
    await client.batches.cancel(id);
    await page.when(`document.querySelector(".tile") !== null && ${tile} === null`);
    await browser.close();
  },
  60_000,
);

/**
 * Batch jobs on this machine. Measures the time to order prompts, tokenization speed, and the cost of keeping
 * a result. `orders`: value of the order on the CPU engine, for a job with shared prefixes: grouped, in file
 * order, and all at once. `beside`: latency of chats beside a job that lasts as long (--prompts 300).
 * `batch`, `atOnce`, `llama`: a batch, the same prompts sent at once to the same server, and to llama-server.
 * `large`: memory of the largest permitted batch, on simulated engines (Linux only).
 *
 *   npx bun benchmarks/jobs.ts [--only order,tokens,store,orders,beside,atOnce,batch,llama,large]
 *     [--place <folder>] [--llama-server <program>] [--prompts 56] [--prefix 275] [--own 100] [--output 32]
 *     [--kv-gib 0.04] [--rounds 3]
 *
 * With a folder for models, the model has 0.5B random weights in int8 (for llama-server Q8_0), made once and
 * kept. Without, it is the model that comes with Bunting. Prompts are in groups of seven, a quarter as long
 * as in the paper's first case. The server's memory holds a few groups of prompts, not all.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { orderOf } from "../scheduler/batch/groups.ts";
import { oneLevel } from "../scheduler/batch/one-level.ts";
import { PrefixTree, promptTable } from "../scheduler/batch/prefix-tree.ts";
import { hasEnded, JobsClient } from "../server/cli/jobs-client.ts";
import { table } from "../server/cli/table.ts";
import { ANSWERED, type BatchRecord, type LineResult } from "../server/jobs/records.ts";
import { JobStore } from "../server/jobs/store.ts";
import { Encoder } from "../server/text/encoder.ts";
import { type JobShape, jobPrompts } from "../simulation/workloads/job.ts";
import { promptOf, shuffled } from "../simulation/workloads/parts.ts";
import { loadTokenizer } from "../text/tokenizer.ts";
import { llamaServers } from "./cpu/llama.ts";
import { ggufFile, modelFolder } from "./cpu/models.ts";
import { besideJob, type Felt } from "./jobs/beside.ts";
import { largeBatch } from "./jobs/large.ts";
import { type Order, OrdersBench, orders, type Turn } from "./jobs/orders.ts";
import { type Started, startServer } from "./started-server.ts";

const { values } = parseArgs({
  options: {
    only: { type: "string", default: "order,tokens,store,orders,beside,atOnce,batch,llama,large" },
    place: { type: "string" },
    "llama-server": { type: "string" },
    prompts: { type: "string", default: "56" },
    prefix: { type: "string", default: "275" },
    own: { type: "string", default: "100" },
    output: { type: "string", default: "32" },
    "kv-gib": { type: "string", default: "0.04" },
    rounds: { type: "string", default: "3" },
  },
});
const root = resolve(import.meta.dir, "..");
const only = values.only.split(",");
const scratch = mkdtempSync(join(tmpdir(), "bunting-jobs-"));
const modelAt = values.place === undefined ? join(root, "models/demo") : modelFolder(values.place, "0.5B");
/** Length of a sequence at most: prompt lengths are exact within a fifth. */
const contextTokens = Math.ceil(1.2 * (Number(values.prefix) + Number(values.own)) + Number(values.output));
const SHARERS = 7;
const ROUNDS = 5;
/** Chats per turn, the milliseconds between them, and the tokens of their answers. */
const CHATS = 20;
const CHAT_EACH_MS = 500;
const CHAT_TOKENS = 12;
/** Bytes of a line: 50,000 lines make the 200 MiB that a file may have. */
const LINE_BYTES = Math.floor((200 * 2 ** 20) / 50_000);
const rows: (readonly [string, string])[] = [];
const tell = (what: string, figure: string): void => {
  rows.push([what, figure]);
  console.error(`${what}: ${figure}`);
};

/** Returns the least time of several runs, since other work on the machine can only add to it. */
function leastMs(run: () => void): number {
  const times = Array.from({ length: ROUNDS }, () => {
    const startMs = performance.now();
    run();
    return performance.now() - startMs;
  });
  return Math.min(...times);
}

function grouping(prompts: number): void {
  const shape: JobShape = {
    prompts,
    sharers: { exactly: SHARERS },
    instructionTokens: 0,
    prefixTokens: 1100,
    ownTokens: 400,
    outputTokens: 64,
    varies: true,
  };
  const list = promptTable(jobPrompts(shape, 1).map(({ parts }) => promptOf(parts)()));
  const groupedMs = leastMs(() => oneLevel(new PrefixTree(list)));
  const orderedMs = leastMs(() => {
    const tree = new PrefixTree(list);
    orderOf(tree, oneLevel(tree), () => 64);
  });
  tell(`${prompts} prompts of 1,500 tokens grouped`, `${groupedMs.toFixed(1)} ms`);
  tell(`${prompts} prompts grouped and put in order`, `${orderedMs.toFixed(1)} ms`);
}

/** Tokenizes texts of about 1,500 tokens, as a job's: on one thread, and on all cores. */
async function tokenising(): Promise<void> {
  const tokenizer = loadTokenizer(modelAt);
  const random = new SeededRandom(1);
  const texts = Array.from({ length: 512 }, () => textOf(random, 1500));
  const options = { addSpecialTokens: false, parseControlText: false };
  const bytes = texts.reduce((sum, text) => sum + text.length, 0);
  const tokens = texts.reduce((sum, text) => sum + tokenizer.encode(text, options).length, 0);
  const rate = (tookMs: number): string =>
    `${(bytes / 1000 / tookMs).toFixed(1)} MB/s, ${Math.round(tokens / tookMs)} tokens/ms`;
  const oneMs = leastMs(() => {
    for (const text of texts) tokenizer.encode(text, options);
  });
  tell("tokenised on one thread", rate(oneMs));
  const workerUrl = new URL("../server/text/worker.ts", import.meta.url).href;
  const encoder = new Encoder({ tokenizer, template: null }, modelAt, workerUrl).forJobs();
  let allMs = Number.POSITIVE_INFINITY;
  for (let round = 0; round < ROUNDS; round++) {
    const startMs = performance.now();
    await Promise.all(texts.map((text) => encoder.encode(text, options)));
    allMs = Math.min(allMs, performance.now() - startMs);
  }
  encoder.close();
  tell(`tokenised on ${availableParallelism()} cores`, rate(allMs));
}

/** Returns the milliseconds to keep a result of 2 kB, in groups of 64. */
function keeping(): number {
  const store = new JobStore(join(scratch, "store"));
  const lines = Array.from({ length: 640 }, (_, index) => ({
    line: index + 1,
    customId: String(index),
    start: 0,
    bytes: 1,
    digest: "",
  }));
  store.addLines("batch", lines);
  const batch = { id: "batch", owner: "", createdAt: 0 } as BatchRecord;
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
  const result = "x".repeat(2000);
  const startMs = performance.now();
  for (let from = 0; from < lines.length; from += 64) {
    const some = lines.slice(from, from + 64);
    store.settle(
      batch,
      some.map(({ line }): LineResult => ({ line, state: ANSWERED, result, usage })),
    );
  }
  const perLineMs = (performance.now() - startMs) / lines.length;
  store.close();
  return perLineMs;
}

const words =
  "river stone candle market window garden letter winter bridge silver morning forest harbour engine paper music".split(
    " ",
  );

function textOf(random: SeededRandom, count: number): string {
  return Array.from({ length: count }, () => words[random.below(words.length)]).join(" ");
}

/** Returns a function that makes texts of about `tokens` tokens. */
function textMaker(random: SeededRandom): (tokens: number) => string {
  const options = { addSpecialTokens: false, parseControlText: false };
  const sample = loadTokenizer(modelAt).encode(textOf(random, 1000), options);
  return (tokens) => textOf(random, Math.round((1000 * tokens) / sample.length));
}

/** Makes prompts in groups that share a prefix, in shuffled order. */
function prompts(): string[] {
  const random = new SeededRandom(7);
  const text = textMaker(random);
  const all: string[] = [];
  while (all.length < Number(values.prompts)) {
    const prefix = text(Number(values.prefix));
    for (let member = 0; member < SHARERS; member++) all.push(`${prefix} ${text(Number(values.own))}`);
  }
  return shuffled(all.slice(0, Number(values.prompts)), random);
}

const requestOf = (prompt: string) => ({
  prompt,
  max_tokens: Number(values.output),
  ignore_eos: true,
  temperature: 0,
});

/** Seconds until every prompt has its answer, and prompt tokens, total and cached. */
interface Timed {
  readonly seconds: number;
  readonly tokens: number;
  readonly cached: number;
}

function startBunting(): Promise<Started> {
  const data = mkdtempSync(join(scratch, "data-"));
  const memory = ["--kv-cache-gib", values["kv-gib"], "--max-model-len", String(contextTokens)];
  const options = ["--device", "cpu", "--quant", "int8", ...memory, "--data", data];
  return startServer([process.execPath, join(root, "server/main.ts"), "serve", modelAt, ...options], scratch);
}

/** Makes a batch's file. */
function fileOf(list: readonly string[]): string {
  const lines = list.map((prompt, index) =>
    JSON.stringify({
      custom_id: String(index),
      method: "POST",
      url: "/v1/completions",
      body: requestOf(prompt),
    }),
  );
  return lines.join("\n");
}

async function asBatch(): Promise<Timed> {
  const server = await startBunting();
  const client = new JobsClient(server.target);
  const list = prompts();
  const startMs = performance.now();
  const file = await client.upload(fileOf(list), "in.jsonl");
  let batch = await client.create(file, "/v1/completions", "24h");
  for (; !hasEnded(batch); batch = await client.batch(batch.id)) await Bun.sleep(20);
  const seconds = (performance.now() - startMs) / 1000;
  await server.stop();
  if (batch.request_counts?.completed !== list.length)
    throw new Error(`the batch is ${JSON.stringify(batch)}`);
  const { input_tokens: tokens, input_tokens_details: details } = batch.usage!;
  return { seconds, tokens, cached: details.cached_tokens };
}

/** Measures files with the most lines and bytes, with half, and with an eighth. */
async function large(): Promise<void> {
  const options = ["--device", "simulated", "--data"];
  for (const lines of [6250, 25_000, 50_000]) {
    const data = mkdtempSync(join(scratch, "data-"));
    const command = [process.execPath, join(root, "server/main.ts")];
    const server = await startServer([...command, "serve", ...options, data], scratch);
    const peaks = await largeBatch(server, command, scratch, lines, LINE_BYTES).finally(server.stop);
    const { ready, uploaded, ended, seconds } = peaks;
    const mib = ((lines * LINE_BYTES) / 2 ** 20).toFixed(0);
    tell(
      `a batch of ${lines} lines, ${mib} MiB: memory at most`,
      `${ready} MiB when ready, ${uploaded} when uploaded, ${ended} when ended, after ${seconds.toFixed(0)} s; the command ${peaks.command} MiB`,
    );
  }
}

interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly prompt_tokens_details?: { readonly cached_tokens: number };
}

async function atOnce(url: string, more: object): Promise<Timed> {
  const startMs = performance.now();
  const usages = await Promise.all(
    prompts().map(async (prompt) => {
      const response = await fetch(`${url}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ ...requestOf(prompt), ...more }),
      });
      if (!response.ok) throw new Error(await response.text());
      const { usage } = (await response.json()) as { readonly usage: Usage };
      if (usage.completion_tokens !== Number(values.output)) throw new Error(JSON.stringify(usage));
      return usage;
    }),
  );
  const seconds = (performance.now() - startMs) / 1000;
  const sum = (read: (usage: Usage) => number): number => usages.reduce((all, one) => all + read(one), 0);
  return {
    seconds,
    tokens: sum(({ prompt_tokens }) => prompt_tokens),
    cached: sum(({ prompt_tokens_details }) => prompt_tokens_details?.cached_tokens ?? 0),
  };
}

/**
 * Runs the job on llama-server. By default that has four slots; here it has one long enough slot per prompt.
 */
async function onLlama(program: string, place: string): Promise<Timed> {
  const gguf = await ggufFile(place, "0.5B", "int8", program);
  const [choice] = llamaServers({ program, gguf, threads: availableParallelism() }, 4, contextTokens);
  const server = await choice!.start();
  return await atOnce(server.url, {}).finally(server.stop);
}

/**
 * Measures chats with as many tokens as the job's groups share, and short answers, some of them concurrent.
 */
async function besideChats(): Promise<void> {
  const server = await startBunting();
  const random = new SeededRandom(9);
  const text = textMaker(random);
  const arrivalsMs: number[] = [];
  for (let atMs = 0; arrivalsMs.length < CHATS; atMs += CHAT_EACH_MS * (0.5 + random.unit()))
    arrivalsMs.push(atMs);
  const felt = await besideJob(server.target, {
    rounds: Number(values.rounds),
    arrivalsMs,
    prompt: () => text(Number(values.prefix)),
    outputTokens: CHAT_TOKENS,
    job: fileOf(prompts()),
  }).finally(server.stop);
  for (const [what, read] of [
    ["first tokens", ({ firstTokens }: Felt) => firstTokens],
    ["gaps", ({ gaps }: Felt) => gaps],
  ] as const) {
    for (const share of [0.5, 0.9, 0.99]) {
      const [without, beside, again] = [felt.without, felt.beside, felt.again].map((one) => {
        const sorted = read(one).toSorted((a, b) => a - b);
        return sorted[Math.ceil(share * sorted.length) - 1]!;
      }) as [number, number, number];
      const ratio = (ms: number): string => `${ms.toFixed(1)} ms, ${(ms / without).toFixed(2)}×`;
      tell(
        `chats' ${what} beside a job, p${100 * share}`,
        `without ${without.toFixed(1)} ms, beside ${ratio(beside)}, without again ${ratio(again)}`,
      );
    }
  }
  const chats = felt.without.firstTokens.length;
  tell(
    "the job's pace beside these, of what it has alone",
    `${(100 * felt.jobShare).toFixed(0)} %, ${chats} chats of each kind`,
  );
}

const timed = new Map<string, Timed>();
async function time(name: string, what: string, run: () => Promise<Timed>): Promise<void> {
  const one = await run();
  timed.set(name, one);
  const cached = `${((100 * one.cached) / one.tokens).toFixed(1)} % of ${one.tokens} tokens cached`;
  tell(`${values.prompts} prompts ${what}`, `${one.seconds.toFixed(1)} s, ${cached}`);
}

/** Runs the orders by turns, so that other programs disturb each equally. */
async function comparingOrders(): Promise<void> {
  const { prompts, prefix, own, output } = values;
  const bench = await OrdersBench.open(modelAt, Number(values["kv-gib"]), 2 * contextTokens, {
    prompts: Number(prompts),
    sharers: { exactly: SHARERS },
    instructionTokens: 0,
    prefixTokens: Number(prefix),
    ownTokens: Number(own),
    outputTokens: Number(output),
    varies: false,
  });
  const turns = new Map<Order, Turn[]>(orders.map((order) => [order, []]));
  for (let round = 0; round < Number(values.rounds); round++) {
    const [first, ...others] = orders;
    for (const order of round % 2 === 0 ? orders : [...others, first]) {
      const turn = await bench.run(order);
      turns.get(order)!.push(turn);
      console.error(
        `${order}: ${turn.seconds.toFixed(1)} s, ${(100 * turn.cachedShare).toFixed(1)} % cached`,
      );
    }
  }
  await bench.close();
  const seconds = (order: Order): number[] => turns.get(order)!.map((turn) => turn.seconds);
  const cached = orders.map((order) => `${order} ${(100 * turns.get(order)![0]!.cachedShare).toFixed(1)} %`);
  tell(`${prompts} prompts of ${prefix} + ${own} tokens, cached`, cached.join(", "));
  for (const order of orders.slice(1)) {
    const ratios = seconds(order).map((taken, round) => taken / seconds("grouped")[round]!);
    const [least, median, most] = [0, ratios.length >> 1, -1].map((at) =>
      ratios.toSorted().at(at)!.toFixed(2),
    );
    tell(`grouped over ${order}`, `${median}× (${least}–${most})`);
  }
}

/**
 * Keeps the process alive. Its threads do not, and an idle process without a handle would poll on a whole
 * core; a server has its sockets.
 */
const awake = setInterval(() => {}, 1000);
if (only.includes("order")) {
  grouping(3000);
  grouping(50_000);
}
if (only.includes("tokens")) await tokenising();
if (only.includes("orders")) await comparingOrders();
const perLineMs = only.includes("store") ? keeping() : null;
if (only.includes("beside")) await besideChats();
if (only.includes("large")) await large();
if (only.includes("atOnce")) {
  await time("atOnce", "at once, as flex requests", async () => {
    const server = await startBunting();
    return await atOnce(server.target.url, { service_tier: "flex" }).finally(server.stop);
  });
}
if (only.includes("batch")) await time("batch", "as a batch", asBatch);
const { place, "llama-server": program } = values;
if (only.includes("llama") && place !== undefined && program !== undefined)
  await time("llama", "at once, on llama-server", () => onLlama(program, place));
const batch = timed.get("batch");
if (batch !== undefined) {
  for (const [name, { seconds }] of timed)
    if (name !== "batch") tell(`batch over ${name}`, `${(seconds / batch.seconds).toFixed(2)}×`);
}
if (perLineMs !== null) {
  tell("keeping a result", `${perLineMs.toFixed(2)} ms`);
  const share = batch === undefined ? null : (perLineMs * Number(values.prompts)) / (10 * batch.seconds);
  if (share !== null) tell("keeping results, of the batch's time", `${share.toFixed(2)} %`);
}
rmSync(scratch, { recursive: true });
clearInterval(awake);
console.log(table(["what", "measured"], rows));

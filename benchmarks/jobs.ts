/**
 * Jobs on this machine: how long it takes to put prompts in order, how fast they are tokenised, what keeping a result costs, and what
 * order is worth on the CPU engine: a job whose prompts share prefixes, as a batch, over the same prompts thrown at the same server at once.
 *
 *   bun benchmarks/jobs.ts [--model <folder>] [--prompts 84] [--prefix 320] [--own 60] [--output 16] [--quant int8] [--kv-gib 0.05]
 *
 * Without a model it is the one that comes with Bunting. The server's memory holds a few groups of prompts, not all.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { orderOf } from "../scheduler/job/groups.ts";
import { oneLevel } from "../scheduler/job/one-level.ts";
import { PrefixTree, promptTable } from "../scheduler/job/prefix-tree.ts";
import { SeededRandom } from "../scheduler/random.ts";
import { type JobShape, jobPrompts } from "../scheduler/sim/workloads/job.ts";
import { promptOf, shuffled } from "../scheduler/sim/workloads/parts.ts";
import { hasEnded, JobsClient } from "../server/cli/jobs-client.ts";
import { table } from "../server/cli/table.ts";
import { ANSWERED, type BatchRecord, type LineResult } from "../server/jobs/records.ts";
import { JobStore } from "../server/jobs/store.ts";
import { loadTokenizer } from "../server/text/tokenizer.ts";
import { startServer } from "./started-server.ts";

const { values } = parseArgs({
  options: {
    model: { type: "string" },
    prompts: { type: "string", default: "84" },
    prefix: { type: "string", default: "320" },
    own: { type: "string", default: "60" },
    output: { type: "string", default: "16" },
    quant: { type: "string", default: "int8" },
    "kv-gib": { type: "string", default: "0.05" },
  },
});
const root = resolve(import.meta.dir, "..");
const scratch = mkdtempSync(join(tmpdir(), "bunting-jobs-"));
const SHARERS = 7;
const ROUNDS = 5;
const rows: (readonly [string, string])[] = [];
const tell = (what: string, figure: string): void => {
  rows.push([what, figure]);
  console.error(`${what}: ${figure}`);
};

/** The least of some runs: what the machine's other work adds is no part of it. */
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

function tokenising(): void {
  const tokenizer = loadTokenizer(join(root, "models/demo"));
  const text = "The quick brown fox jumps over the lazy dog, and 7 others look on. ".repeat(64);
  let tokens = 0;
  const tookMs = leastMs(() => {
    tokens = 0;
    for (let i = 0; i < 100; i++) {
      tokens += tokenizer.encode(`${i} ${text}`, { addSpecialTokens: false, parseControlText: false }).length;
    }
  });
  tell(
    "tokenised on one thread",
    `${((100 * text.length) / 1000 / tookMs).toFixed(1)} MB/s, ${Math.round(tokens / tookMs)} tokens/ms`,
  );
}

/** Milliseconds that keeping a result of 2 kB takes, in groups of 64. */
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
    store.commit(
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

/** Prompts in groups of sharers, in an order in which nobody would find them. */
function prompts(): string[] {
  const random = new SeededRandom(7);
  const all: string[] = [];
  while (all.length < Number(values.prompts)) {
    const prefix = textOf(random, Number(values.prefix));
    for (let member = 0; member < SHARERS; member++)
      all.push(`${prefix} ${textOf(random, Number(values.own))}`);
  }
  return shuffled(all.slice(0, Number(values.prompts)), random);
}

const requestOf = (prompt: string) => ({
  prompt,
  max_tokens: Number(values.output),
  ignore_eos: true,
  temperature: 0,
});

/** Seconds until every prompt has its answer, and the share of prompts' tokens that were cached. */
async function timed(asBatch: boolean): Promise<{ readonly seconds: number; readonly cached: number }> {
  const folder = values.model === undefined ? [] : [resolve(values.model)];
  const options = ["--device", "cpu", "--quant", values.quant, "--kv-cache-gib", values["kv-gib"]];
  const data = mkdtempSync(join(scratch, "data-"));
  const command = [
    process.execPath,
    join(root, "server/main.ts"),
    "serve",
    ...folder,
    ...options,
    "--data",
    data,
  ];
  const server = await startServer(command, scratch);
  const client = new JobsClient(server.target);
  const list = prompts();
  const startMs = performance.now();
  let cached = 0;
  let total = 0;
  if (asBatch) {
    const lines = list.map((prompt, index) =>
      JSON.stringify({
        custom_id: String(index),
        method: "POST",
        url: "/v1/completions",
        body: requestOf(prompt),
      }),
    );
    const file = await client.upload(lines.join("\n"), "in.jsonl");
    let batch = await client.create(file, "/v1/completions", "24h");
    for (; !hasEnded(batch); batch = await client.batch(batch.id)) await Bun.sleep(20);
    if (batch.request_counts?.completed !== list.length)
      throw new Error(`the batch is ${JSON.stringify(batch)}`);
    cached = batch.usage!.input_tokens_details.cached_tokens;
    total = batch.usage!.input_tokens;
  } else {
    await Promise.all(
      list.map(async (prompt) => {
        const response = await fetch(`${server.target.url}/v1/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ...requestOf(prompt), service_tier: "flex" }),
        });
        const { usage } = (await response.json()) as {
          readonly usage: {
            readonly prompt_tokens: number;
            readonly prompt_tokens_details: { readonly cached_tokens: number };
          };
        };
        cached += usage.prompt_tokens_details.cached_tokens;
        total += usage.prompt_tokens;
      }),
    );
  }
  const seconds = (performance.now() - startMs) / 1000;
  await server.stop();
  return { seconds, cached: cached / total };
}

grouping(3000);
grouping(50_000);
tokenising();
const perLineMs = keeping();
const atOnce = await timed(false);
const batch = await timed(true);
const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
tell(
  `${values.prompts} prompts at once, as flex requests`,
  `${atOnce.seconds.toFixed(1)} s, ${percent(atOnce.cached)} cached`,
);
tell(
  `${values.prompts} prompts as a batch`,
  `${batch.seconds.toFixed(1)} s, ${percent(batch.cached)} cached`,
);
tell("batch over at once", `${(atOnce.seconds / batch.seconds).toFixed(2)}×`);
const share = (perLineMs * Number(values.prompts)) / (1000 * batch.seconds);
tell("keeping a result", `${perLineMs.toFixed(2)} ms, ${percent(share)} of the job`);
rmSync(scratch, { recursive: true });
console.log(table(["what", "measured"], rows));

/**
 * Two models that take turns in memory for one. Requests of one token alternate between them, so that each one
 * waits for a load. Each wait is compared with a start of a server of that model alone, from its process to the
 * same answer; the files are in the page cache for both. With memory for both, a stream of the first model is
 * read while the second one loads.
 *
 *   bun tools/random-model.ts Qwen2.5-0.5B <folder>
 *   bun benchmarks/swaps.ts models/demo <folder> [--swaps 20] [--memory 3GiB] [--both 6GiB] [--device cpu]
 *
 * `--memory` must hold the larger model and not both.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Cell, table } from "../server/cli/table.ts";
import { type Started, startServer } from "./started-server.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    swaps: { type: "string", default: "20" },
    memory: { type: "string", default: "3GiB" },
    both: { type: "string", default: "6GiB" },
    device: { type: "string", default: "cpu" },
  },
});
const [first, second] = positionals;
if (first === undefined || second === undefined) throw new Error("two model folders are needed");
const folders = { first, second };
type Name = keyof typeof folders;

const main = join(import.meta.dir, "../server/main.ts");

function serve(options: readonly string[]): Promise<Started> {
  return startServer([process.execPath, main, "serve", "--device", values.device, ...options], ".");
}

async function ask({ target }: Started, model?: string): Promise<void> {
  const response = await fetch(`${target.url}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, prompt: "a", max_tokens: 1, ignore_eos: true }),
  });
  if (!response.ok) throw new Error(await response.text());
  await response.text();
}

function rssMib(pid: number): number {
  const kib = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1];
  return Number(kib) / 1024;
}

const median = (numbers: readonly number[]): number =>
  numbers.toSorted((a, b) => a - b)[numbers.length >> 1]!;

/** Seconds from the start of a server of this model alone to its first response, per start. */
async function starts(name: Name): Promise<number[]> {
  const seconds: number[] = [];
  for (let round = 0; round < 4; round++) {
    const startedMs = performance.now();
    const server = await serve([folders[name]]);
    await ask(server);
    seconds.push((performance.now() - startedMs) / 1000);
    await server.stop();
  }
  return seconds.slice(1); // the first start also packs weights and reads files from disk
}

const alone = { first: await starts("first"), second: await starts("second") };
const models = (["first", "second"] as const).flatMap((name) => ["--model", `${name}=${folders[name]}`]);

const server = await serve([...models, "--memory", values.memory]);
const swaps: Record<Name, number[]> = { first: [], second: [] };
const rss: number[] = [];
for (let swap = 0; swap < Number(values.swaps); swap++) {
  const name = swap % 2 === 0 ? "first" : "second";
  const startedMs = performance.now();
  await ask(server, name);
  swaps[name].push((performance.now() - startedMs) / 1000);
  if (name === "second") rss.push(rssMib(server.pid));
}
await server.stop();

const rows: Cell[][] = (["first", "second"] as const).map((name) => [
  name,
  median(alone[name]).toFixed(2),
  median(swaps[name]).toFixed(2),
  Math.max(...swaps[name]).toFixed(2),
  (median(swaps[name]) / median(alone[name])).toFixed(2),
]);
console.log(table(["model", "start s", "swap s", "longest s", "swap / start"], rows));
console.log(`\nRSS with the second model loaded, MiB: ${rss.map((mib) => mib.toFixed(0)).join(", ")}`);

/** Longest inter-token gap, in milliseconds, of a stream of `first` while `act` runs. */
async function longestGapMs(beside: Started, act: () => Promise<void>): Promise<number> {
  const ending = new AbortController();
  const response = await fetch(`${beside.target.url}/v1/completions`, {
    method: "POST",
    signal: ending.signal,
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "first", prompt: "a", max_tokens: 1900, ignore_eos: true, stream: true }),
  });
  let longestMs = 0;
  let isOver = false;
  const acting = act().finally(() => {
    isOver = true;
  });
  let lastMs = performance.now();
  for await (const _ of response.body!) {
    longestMs = Math.max(longestMs, performance.now() - lastMs);
    lastMs = performance.now();
    if (isOver) break;
  }
  ending.abort();
  await acting;
  return longestMs;
}

const both = await serve([...models, "--memory", values.both]);
await ask(both, "first");
const quietMs = await longestGapMs(both, () => Bun.sleep(1000));
const loadingMs = await longestGapMs(both, () => ask(both, "second"));
await both.stop();
console.log(
  `\nLongest gap of a stream: ${quietMs.toFixed(1)} ms alone, ${loadingMs.toFixed(1)} ms while the other model loads.`,
);

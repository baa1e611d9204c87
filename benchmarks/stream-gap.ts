/**
 * Gaps of streams while long prompts arrive, without a target and with `--tbt-ms`. The server has just
 * started and has seen no long prompt yet. Clients read streams, while uncached prompts are sent beside them,
 * with one service tier or another. The prompts come one after the other or, with `--together`, all at once.
 * Gaps are those that clients see. Quiet gaps are those of the same streams before the first prompt.
 *
 *   bun tools/random-model.ts Qwen2.5-0.5B <folder>
 *   bun benchmarks/stream-gap.ts <folder> [--tbt-ms 0,150,300] [--tier default,flex] [--streams 1]
 *     [--prompts 3] [--prompt-tokens 4000] [--together] [--device cpu] [--quant auto] [--step-tokens 2048] [--rounds 1]
 *   bun benchmarks/stream-gap.ts <folder> --tbt-ms 0 --streams 6 --prompts 5 --prompt-tokens 3000 --together
 *     --quant int8 [--tbt-ms 0,1000 --step-tokens 2048,256 --rounds 3]
 *
 * The last form runs with a loose target: steps of equally many tokens, by turns.
 */

import { parseArgs } from "node:util";
import { type Cell, table } from "../server/cli/table.ts";
import { makeConfig, serverSettings } from "../server/config.ts";
import { startServer } from "../server/start.ts";

const QUIET_TOKENS = 32;
const STREAM_TOKENS_MAX = 20_000;
/** Tokens that every vocabulary has. */
const VOCABULARY = 4000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "tbt-ms": { type: "string", default: "0,150,300" },
    tier: { type: "string", default: "default" },
    streams: { type: "string", default: "1" },
    prompts: { type: "string", default: "3" },
    together: { type: "boolean", default: false },
    "prompt-tokens": { type: "string", default: "4000" },
    device: { type: "string", default: "cpu" },
    quant: { type: "string", default: "auto" },
    "step-tokens": { type: "string", default: "2048" },
    rounds: { type: "string", default: "1" },
  },
});

interface Measured {
  readonly quietMs: readonly number[];
  readonly busyMs: readonly number[];
  /** Seconds from sending each prompt to its first token. */
  readonly firstSeconds: readonly number[];
  /** Counter of the engine. */
  readonly stepsOverTarget: number;
  /** 99th percentile of measured over predicted step times. */
  readonly predictionError: number;
}

/** Starts a server, measures and stops it. */
async function measure(folder: string, stepTokens: number, tbtMs: number, tier: string): Promise<Measured> {
  const device = serverSettings.device.parse(values.device);
  const quant = serverSettings.quant.parse(values.quant);
  // A tier on disk would have the prompts of the run before.
  const config = makeConfig({ port: 0, device, quant, tbtMs, stepTokens, kvCacheGib: 0.5, kvDisk: 0 });
  const server = await startServer(config, folder, { onPlan: () => {}, onProgress: () => {} });
  const ask = (body: object, signal?: AbortSignal): Promise<Response> =>
    fetch(`${server.url}/v1/completions`, {
      method: "POST",
      body: JSON.stringify({ ignore_eos: true, temperature: 0, ...body }),
      headers: { "content-type": "application/json" },
      ...(signal === undefined ? {} : { signal }),
    });

  const ending = new AbortController();
  const streams = Array.from({ length: Number(values.streams) }, (_, stream) => {
    const tokensMs: number[] = [];
    const isQuietOver = Promise.withResolvers<void>();
    const read = async (): Promise<void> => {
      const body = { prompt: randomTokens(1000 + stream, 16), max_tokens: STREAM_TOKENS_MAX, stream: true };
      const response = await ask({ ...body, return_token_ids: true }, ending.signal);
      for await (const bytes of response.body!) {
        if (!new TextDecoder().decode(bytes).includes('"token_ids"')) continue;
        tokensMs.push(performance.now());
        if (tokensMs.length === QUIET_TOKENS) isQuietOver.resolve();
      }
    };
    const reading = read().catch((error: Error) => {
      if (!ending.signal.aborted) throw error;
    });
    return { tokensMs, isQuietOver: isQuietOver.promise, reading };
  });

  await Promise.all(streams.map(({ isQuietOver }) => isQuietOver));
  const startMs = performance.now();
  const askPrompt = async (seed: number): Promise<number> => {
    const sentMs = performance.now();
    const prompt = randomTokens(seed, Number(values["prompt-tokens"]));
    const response = await ask({ prompt, max_tokens: 1, service_tier: tier });
    if (!response.ok) throw new Error(await response.text());
    await response.json();
    return (performance.now() - sentMs) / 1000;
  };
  const seeds = Array.from({ length: Number(values.prompts) }, (_, index) => 2 + index);
  const firstSeconds = values.together ? await Promise.all(seeds.map(askPrompt)) : [];
  if (!values.together) for (const seed of seeds) firstSeconds.push(await askPrompt(seed));
  const endMs = performance.now();
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  ending.abort();
  await Promise.all(streams.map(({ reading }) => reading));
  await server.drain(1000);
  const gaps = streams.flatMap(({ tokensMs }) =>
    tokensMs.slice(1).map((timeMs, i) => ({ timeMs, gapMs: timeMs - tokensMs[i]! })),
  );
  return {
    quietMs: gaps.filter(({ timeMs }) => timeMs < startMs).map(({ gapMs }) => gapMs),
    busyMs: gaps.filter(({ timeMs }) => timeMs >= startMs && timeMs <= endMs).map(({ gapMs }) => gapMs),
    firstSeconds,
    stepsOverTarget: metricOf(metrics, "bunting_steps_over_target_total"),
    predictionError: metricOf(metrics, "bunting_step_prediction_error"),
  };
}

function metricOf(metrics: string, name: string): number {
  const line = metrics.split("\n").find((text) => text.startsWith(`${name}{`));
  return Number(line?.split(" ").at(-1) ?? Number.NaN);
}

/** Makes random tokens, the same each time for a seed. */
function randomTokens(seed: number, count: number): number[] {
  let state = Math.imul(seed, 0x9e3779b9) | 1;
  return Array.from({ length: count }, () => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5;
    return (state >>> 8) % VOCABULARY;
  });
}

function share(sorted: readonly number[], part: number): string {
  const value = sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
  return value === undefined ? "–" : value.toFixed(0);
}

function row(stepTokens: number, tbtMs: number, tier: string, measured: Measured): readonly Cell[] {
  const quiet = measured.quietMs.toSorted((a, b) => a - b);
  const busy = measured.busyMs.toSorted((a, b) => a - b);
  const { firstSeconds } = measured;
  const meanSeconds = firstSeconds.reduce((sum, value) => sum + value, 0) / firstSeconds.length;
  return [
    stepTokens,
    tbtMs === 0 ? "off" : tbtMs,
    tier,
    share(quiet, 0.5),
    share(quiet, 1),
    busy.length,
    share(busy, 0.5),
    share(busy, 0.99),
    share(busy, 1),
    tbtMs === 0 ? null : busy.filter((gapMs) => gapMs > tbtMs).length,
    meanSeconds.toFixed(2),
    Math.max(...firstSeconds).toFixed(2),
    (measured.predictionError * 100).toFixed(0),
  ];
}

const folder = positionals[0];
if (folder === undefined) throw new Error("which model folder?");
const head = [
  "step tokens",
  "tbt-ms",
  "tier",
  "quiet p50",
  "max",
  "tokens",
  "gap p50",
  "p99",
  "max",
  "over",
  "first token s",
  "max",
  "error p99 %",
];
const rows: (readonly Cell[])[] = [];
const numbersOf = (list: string): readonly number[] => list.split(",").map(Number);
const cases = numbersOf(values["step-tokens"]).flatMap((stepTokens) =>
  numbersOf(values["tbt-ms"]).flatMap((tbtMs) =>
    values.tier.split(",").map((tier) => ({ stepTokens, tbtMs, tier })),
  ),
);
for (let round = 0; round < Number(values.rounds); round++)
  for (const { stepTokens, tbtMs, tier } of cases) {
    rows.push(row(stepTokens, tbtMs, tier, await measure(folder, stepTokens, tbtMs, tier)));
    console.log(`${table(head, rows)}\n`);
  }
process.exit(0);

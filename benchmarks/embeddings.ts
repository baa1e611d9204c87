/**
 * Embeddings per second compared with llama-server, with one model file on both. Texts have one length, in
 * large requests and alone, one after another. Texts are sent as tokens, so that both count the same. The
 * processor time of a text is compared too: other programs on the machine change it little.
 *
 *   bun benchmarks/embeddings.ts <model.gguf> <llama-server> [--rounds 3] [--threads N] [--pooling last] [--vocab 51000]
 */

import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { table } from "../server/cli/table.ts";
import { type RunningProgram, startProgram } from "./cpu/runs.ts";

const LOADS = [
  { name: "64 texts of 32 tokens in one request", requests: 1, texts: 64, tokens: 32 },
  { name: "4 texts of 512 tokens in one request", requests: 1, texts: 4, tokens: 512 },
  { name: "16 requests of a text of 32 tokens, one after another", requests: 16, texts: 1, tokens: 32 },
] as const;
/** Ids from here to the end of the vocabulary are plain text in all tokenizers of the models. */
const FIRST_TOKEN = 1000;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    rounds: { type: "string", default: "3" },
    pooling: { type: "string", default: "last" },
    vocab: { type: "string", default: "51000" },
    threads: { type: "string", default: String(availableParallelism()) },
  },
});
const [model, llamaServer] = positionals;
if (model === undefined || llamaServer === undefined) throw new Error("give a GGUF file and llama-server");
await main(model, llamaServer);

/** Processor seconds that a process has taken. */
function processorSeconds({ pid }: Pick<RunningProgram, "pid">): number {
  // The fields after the program's name in parentheses; clock ticks are hundredths of a second.
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

interface Rate {
  readonly perSecond: number;
  /** Texts per second of processor time. */
  readonly perProcessorSecond: number;
}

/** Measures a load. No two texts begin alike, so that no prefix is cached. */
async function rate(
  server: Pick<RunningProgram, "url" | "pid">,
  { requests, texts, tokens }: (typeof LOADS)[number],
  random: SeededRandom,
): Promise<Rate> {
  const text = (): number[] =>
    Array.from({ length: tokens }, () => FIRST_TOKEN + random.below(Number(values.vocab) - FIRST_TOKEN));
  const bodies = Array.from({ length: requests }, () =>
    JSON.stringify({ input: Array.from({ length: texts }, text), encoding_format: "base64" }),
  );
  const fromSeconds = processorSeconds(server);
  const fromMs = performance.now();
  for (const body of bodies) {
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${server.url}/v1/embeddings`, { method: "POST", headers, body });
    const { data } = (await response.json()) as { readonly data?: readonly unknown[] };
    if (data?.length !== texts) throw new Error(`not the embeddings: ${response.status}`);
  }
  const perSecond = (1000 * requests * texts) / (performance.now() - fromMs);
  return { perSecond, perProcessorSecond: (requests * texts) / (processorSeconds(server) - fromSeconds) };
}

async function main(gguf: string, program: string): Promise<void> {
  const { threads } = values;
  const entry = join(import.meta.dir, "../server/main.ts");
  const ours = await startProgram(
    (port) => [process.execPath, entry, "serve", gguf, "--threads", threads, "--port", String(port)],
    "/health/ready",
  );
  const theirs = await startProgram(
    (port) => [
      ...[program, "-m", gguf, "-t", threads, "--port", String(port), "--host", "127.0.0.1", "--no-webui"],
      ...["--embedding", "--pooling", values.pooling, "-np", "4", "-c", "4096", "-b", "2048", "-ub", "2048"],
    ],
    "/health",
  );
  const rows: string[][] = [];
  for (const load of LOADS) {
    const ratios: number[] = [];
    const processorRatios: number[] = [];
    const rates = { ours: 0, theirs: 0 };
    // The first round is a warm-up and does not count.
    for (let round = 0; round <= Number(values.rounds); round++) {
      const seed = 100 * LOADS.indexOf(load) + round;
      const [own, other] = [
        await rate(ours, load, new SeededRandom(seed)),
        await rate(theirs, load, new SeededRandom(seed)),
      ];
      if (round === 0) continue;
      ratios.push(own.perSecond / other.perSecond);
      processorRatios.push(own.perProcessorSecond / other.perProcessorSecond);
      rates.ours += own.perSecond / Number(values.rounds);
      rates.theirs += other.perSecond / Number(values.rounds);
    }
    rows.push([
      load.name,
      rates.ours.toFixed(1),
      rates.theirs.toFixed(1),
      middleOf(ratios),
      middleOf(processorRatios),
    ]);
  }
  await ours.stop();
  await theirs.stop();
  const columns = ["load", "ours, texts/s", "llama-server, texts/s", "ratio", "ratio by processor time"];
  process.stdout.write(`${table(columns, rows)}\n`);
}

/** Median of the ratios, with the lowest and the highest. */
function middleOf(ratios: readonly number[]): string {
  const sorted = ratios.toSorted((a, b) => a - b);
  const spread = `${sorted[0]!.toFixed(2)}–${sorted.at(-1)!.toFixed(2)}`;
  return `${sorted[sorted.length >> 1]!.toFixed(2)} (${spread})`;
}

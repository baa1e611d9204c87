/** llama.cpp beside us: its own programs, each in the faster of its configurations. */
import { dirname, join } from "node:path";
import { DECODE_STEPS, type Streams, TRIES } from "./engine.ts";
import { type RunningProgram, runProgram, startProgram } from "./runs.ts";

/** A rate and the configuration that reached it. */
export interface Best {
  readonly perSecond: number;
  readonly with: string;
}

export const flashChoices = ["off", "on"] as const;
export type Flash = (typeof flashChoices)[number];

/** Prompt tokens per second of one prompt. */
export function llamaPrefill(program: string, gguf: string, threads: number, tokens: number): Promise<Best> {
  return llamaBench(program, gguf, threads, ["-p", String(tokens), "-n", "0"]);
}

/** Tokens per second of one stream behind a context. */
export function llamaDecode(
  program: string,
  gguf: string,
  threads: number,
  { contextTokens }: Streams,
): Promise<Best> {
  const work = ["-p", "0", "-n", String(DECODE_STEPS), "-d", String(contextTokens)];
  return llamaBench(program, gguf, threads, work);
}

async function llamaBench(
  program: string,
  gguf: string,
  threads: number,
  work: readonly string[],
): Promise<Best> {
  const runs: Best[] = [];
  for (const flash of flashChoices) {
    const out = await runProgram([
      ...[program, "-m", gguf, "-t", String(threads), "-fa", flash, "-r", String(TRIES), "-o", "json"],
      ...work,
    ]);
    const rows = JSON.parse(out) as { readonly samples_ts: readonly number[] }[];
    runs.push({ perSecond: Math.max(...rows.flatMap((row) => row.samples_ts)), with: `-fa ${flash}` });
  }
  return fastest(runs);
}

/** Tokens per second of all streams together: with a cache for each stream or one for all, which is how a prefix is
 *  shared. */
export async function llamaBatched(
  program: string,
  gguf: string,
  threads: number,
  { streams, contextTokens, sharedTokens }: Streams,
): Promise<Best> {
  const runs: Best[] = [];
  const caches = sharedTokens > 0 ? [[], ["-kvu"]] : [[]];
  for (const flash of flashChoices) {
    for (const cache of caches) {
      const out = await runProgram([
        ...[join(dirname(program), "llama-batched-bench"), "-m", gguf, "-t", String(threads), "-fa", flash],
        ...["-c", String(streams * (contextTokens + 2 * DECODE_STEPS) + 512), "-b", "2048", "-ub", "512"],
        ...["-npp", String(contextTokens), "-ntg", String(DECODE_STEPS)],
        ...["-npl", Array.from({ length: TRIES }, () => streams).join(",")],
        ...(sharedTokens > 0 ? ["-pps"] : []),
        ...[...cache, "--output-format", "jsonl"],
      ]);
      const rates = out
        .split("\n")
        .filter((line) => line.startsWith("{"))
        .map((line) => (JSON.parse(line) as { speed_tg: number }).speed_tg);
      if (rates.length === 0) throw new Error(`llama-batched-bench printed no result: ${out.slice(-500)}`);
      runs.push({ perSecond: Math.max(...rates), with: [`-fa ${flash}`, ...cache].join(" ") });
    }
  }
  return fastest(runs);
}

/** With `slots` sequences at once, each of up to `contextTokens`; `null` slots: what it takes by itself, which is four that
 *  share one cache. */
export function startLlamaServer(
  program: string,
  gguf: string,
  threads: number,
  options: { readonly slots: number | null; readonly contextTokens: number; readonly flash: Flash },
): Promise<RunningProgram> {
  const { slots, contextTokens, flash } = options;
  return startProgram(
    (port) => [
      ...[program, "-m", gguf, "-t", String(threads), "--port", String(port), "--host", "127.0.0.1"],
      ...(slots === null ? [] : ["-np", String(slots)]),
      ...["-c", String((slots ?? 4) * contextTokens), "-fa", flash, "--no-webui"],
    ],
    "/health",
  );
}

function fastest(runs: readonly Best[]): Best {
  return runs.reduce((best, run) => (run.perSecond > best.perSecond ? run : best));
}

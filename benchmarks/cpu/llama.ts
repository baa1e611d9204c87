/** llama.cpp beside us: its own programs, each in the faster of its configurations. */
import { dirname, join } from "node:path";
import type { Streams } from "./engine.ts";
import { type RunningProgram, runProgram, startProgram } from "./runs.ts";

/** A rate and the configuration that reached it. */
export interface Best {
  readonly perSecond: number;
  readonly with: string;
}

const flashChoices = ["off", "on"] as const;

/** Prompt tokens per second; or, with `prompt` 0, tokens per second of one stream. */
export async function llamaBench(
  program: string,
  gguf: string,
  threads: number,
  work: { readonly prompt: number; readonly generate: number },
): Promise<Best> {
  const runs: Best[] = [];
  for (const flash of ["0", "1"]) {
    const out = await runProgram([
      ...[program, "-m", gguf, "-t", String(threads), "-fa", flash, "-r", "3", "-o", "json"],
      ...["-p", String(work.prompt), "-n", String(work.generate)],
    ]);
    const rows = JSON.parse(out) as { readonly samples_ts: readonly number[] }[];
    runs.push({ perSecond: Math.max(...rows.flatMap((row) => row.samples_ts)), with: `-fa ${flash}` });
  }
  return fastest(runs);
}

/** Tokens per second of all streams together. */
export async function llamaBatched(
  program: string,
  gguf: string,
  threads: number,
  { streams, contextTokens, sharedTokens }: Streams,
): Promise<Best> {
  const runs: Best[] = [];
  for (const flash of flashChoices) {
    const out = await runProgram([
      ...[join(dirname(program), "llama-batched-bench"), "-m", gguf, "-t", String(threads), "-fa", flash],
      ...["-c", String(streams * (contextTokens + 64) + 512), "-b", "2048", "-ub", "512"],
      ...["-npp", String(contextTokens), "-ntg", "32", "-npl", String(streams)],
      ...(sharedTokens > 0 ? ["-pps"] : []),
      ...["--output-format", "jsonl"],
    ]);
    const line = out.split("\n").find((text) => text.startsWith("{"));
    if (line === undefined) throw new Error(`llama-batched-bench printed no result: ${out.slice(-500)}`);
    runs.push({ perSecond: (JSON.parse(line) as { speed_tg: number }).speed_tg, with: `-fa ${flash}` });
  }
  return fastest(runs);
}

/** A server with a slot for each client. */
export function startLlamaServer(
  program: string,
  gguf: string,
  threads: number,
  options: { readonly slots: number; readonly contextTokens: number; readonly flash: "off" | "on" },
): Promise<RunningProgram> {
  return startProgram(
    (port) => [
      ...[program, "-m", gguf, "-t", String(threads), "--port", String(port), "--host", "127.0.0.1"],
      ...["-np", String(options.slots), "-c", String(options.slots * options.contextTokens)],
      ...["-fa", options.flash, "--no-webui"],
    ],
    "/health",
  );
}

function fastest(runs: readonly Best[]): Best {
  return runs.reduce((best, run) => (run.perSecond > best.perSecond ? run : best));
}

/** Measurements of llama.cpp with its own programs, in each configuration that may be its fastest. */
import { dirname, join } from "node:path";
import { DECODE_STEPS, type Streams } from "./engine.ts";
import type { Configuration } from "./rounds.ts";
import { type RunningProgram, runProgram, startProgram } from "./runs.ts";

export interface Llama {
  /** Path of llama-bench or llama-server; the other programs are beside it. */
  readonly program: string;
  readonly gguf: string;
  readonly threads: number;
}

const flashChoices = ["off", "on"] as const;

/** Configurations for prompt tokens per second of one prompt. */
export function llamaPrefill(llama: Llama, tokens: number): Configuration[] {
  return llamaBench(llama, ["-p", String(tokens), "-n", "0"]);
}

/** Configurations for tokens per second of one stream after a context. */
export function llamaDecode(llama: Llama, { contextTokens }: Streams): Configuration[] {
  return llamaBench(llama, ["-p", "0", "-n", String(DECODE_STEPS), "-d", String(contextTokens)]);
}

function llamaBench({ program, gguf, threads }: Llama, work: readonly string[]): Configuration[] {
  return flashChoices.map((flash) => ({
    name: `-fa ${flash}`,
    measure: async () => {
      const common = [program, "-m", gguf, "-t", String(threads), "-fa", flash, "-r", "1", "-o", "json"];
      const out = await runProgram([...common, ...work]);
      const rate = (JSON.parse(out) as { readonly samples_ts: readonly number[] }[])[0]?.samples_ts[0];
      if (rate === undefined) throw new Error(`llama-bench printed no result: ${out.slice(-500)}`);
      return rate;
    },
  }));
}

/**
 * Configurations for tokens per second of all streams: with a cache per stream, or one shared cache, which is
 * how llama.cpp shares a prefix.
 */
export function llamaBatched({ program, gguf, threads }: Llama, work: Streams): Configuration[] {
  const { streams, contextTokens, sharedTokens } = work;
  const caches = sharedTokens > 0 ? [[], ["-kvu"]] : [[]];
  const choices = flashChoices.flatMap((flash) => caches.map((cache) => ["-fa", flash, ...cache]));
  return choices.map((choice) => ({
    name: choice.join(" "),
    measure: async () => {
      const out = await runProgram([
        ...[join(dirname(program), "llama-batched-bench"), "-m", gguf, "-t", String(threads), ...choice],
        ...["-c", String(streams * (contextTokens + 2 * DECODE_STEPS) + 512), "-b", "2048", "-ub", "512"],
        ...["-npp", String(contextTokens), "-ntg", String(DECODE_STEPS), "-npl", String(streams)],
        ...(sharedTokens > 0 ? ["-pps"] : []),
        ...["--output-format", "jsonl"],
      ]);
      const line = out.split("\n").find((text) => text.startsWith("{"));
      if (line === undefined) throw new Error(`llama-batched-bench printed no result: ${out.slice(-500)}`);
      return (JSON.parse(line) as { readonly speed_tg: number }).speed_tg;
    },
  }));
}

export interface ServerChoice {
  readonly name: string;
  start(): Promise<RunningProgram>;
}

/**
 * Server configurations: flash attention on or off; one slot per client, or the default of four slots that
 * share one cache.
 */
export function llamaServers(llama: Llama, clients: number, contextTokens: number): ServerChoice[] {
  const { program, gguf, threads } = llama;
  return [clients, null].flatMap((slots) =>
    flashChoices.map((flash) => ({
      name: `${slots === null ? "" : `-np ${slots} `}-fa ${flash}`,
      start: () =>
        startProgram(
          (port) => [
            ...[program, "-m", gguf, "-t", String(threads), "--port", String(port), "--host", "127.0.0.1"],
            ...(slots === null ? [] : ["-np", String(slots)]),
            ...["-c", String((slots ?? 4) * contextTokens), "-fa", flash, "--no-webui"],
          ],
          "/health",
        ),
    })),
  );
}

/** Latency of a server, ours or llama.cpp's, with its clients on the same machine. */
import { resolve } from "node:path";
import { listModels } from "../../server/cli/client.ts";
import { type LoadPlan, type LoadReport, runLoad } from "../../server/cli/load.ts";
import type { Format } from "./engine.ts";
import type { ServerChoice } from "./llama.ts";
import { type RunningProgram, startProgram } from "./runs.ts";

const root = resolve(import.meta.dir, "../..");

export interface Crowd {
  readonly clients: number;
  readonly requests: number;
  readonly sharedTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/** Starts our server on a folder, from source. */
export function startOurs(folder: string, format: Format, threads: number): Promise<RunningProgram> {
  const quant = format === "bf16" ? "none" : format;
  return startProgram(
    (port) => [
      ...[process.execPath, resolve(root, "server/main.ts"), "serve", folder, "--port", String(port)],
      ...["--device", "cpu", "--threads", String(threads), "--quant", quant, "--kv-cache-gib", "5"],
    ],
    "/health/ready",
    root,
  );
}

/** Loads a server with clients; throws if a request fails or an answer has the wrong length. */
async function loadServer(url: string, crowd: Crowd): Promise<LoadReport> {
  const target = { url, apiKey: null };
  const [model] = await listModels(target);
  const plan: LoadPlan = {
    model: model ?? "model",
    requests: crowd.requests,
    arrivals: { kind: "closed", clients: crowd.clients },
    promptTokens: crowd.sharedTokens + crowd.ownTokens,
    sharedPrefixTokens: crowd.sharedTokens,
    outputTokens: crowd.outputTokens,
    ignoreEos: true,
    seed: 1,
  };
  const report = await runLoad(target, plan, () => {}, new AbortController().signal);
  if (report.failed > 0) throw new Error(`${url}: ${JSON.stringify(report.errors)}`);
  const wanted = crowd.requests * crowd.outputTokens;
  if (report.outputTokens !== wanted)
    throw new Error(`${url}: ${report.outputTokens} tokens came, not ${wanted}`);
  return report;
}

export interface Served {
  /** Reports of our server, an odd number. */
  readonly ours: readonly LoadReport[];
  /** Report of llama.cpp with most tokens per second; null: not present. */
  readonly llama: { readonly report: LoadReport; readonly name: string } | null;
}

/**
 * Runs ours before, amid and after llama.cpp's configurations, each of which runs only once since it takes
 * minutes.
 */
export async function serveBoth(
  crowd: Crowd,
  startOurs: () => Promise<RunningProgram>,
  choices: readonly ServerChoice[],
): Promise<Served> {
  const load = async (start: () => Promise<RunningProgram>): Promise<LoadReport> => {
    const server = await start();
    return await loadServer(server.url, crowd).finally(server.stop);
  };
  const ours: LoadReport[] = [];
  let llama: Served["llama"] = null;
  const half = choices.length / 2;
  for (const part of [choices.slice(0, half), choices.slice(half), []]) {
    ours.push(await load(startOurs));
    for (const { name, start } of part) {
      const report = await load(start);
      if (report.outputTokensPerSecond > (llama?.report.outputTokensPerSecond ?? 0)) llama = { report, name };
    }
  }
  return { ours, llama };
}

/** Context of a server for one client: prompt, answer and some words around them. */
export function contextTokensOf({ sharedTokens, ownTokens, outputTokens }: Crowd): number {
  return sharedTokens + ownTokens + outputTokens + 128;
}

/** What clients of a server feel, ours and llama.cpp's, on this machine with them. */
import { resolve } from "node:path";
import { listModels } from "../../server/cli/client.ts";
import { type LoadPlan, type LoadReport, runLoad } from "../../server/cli/load.ts";
import type { Format } from "./engine.ts";
import { flashChoices, startLlamaServer } from "./llama.ts";
import { type RunningProgram, startProgram } from "./runs.ts";

const root = resolve(import.meta.dir, "../..");

export interface Crowd {
  readonly clients: number;
  readonly requests: number;
  readonly sharedTokens: number;
  readonly ownTokens: number;
  readonly outputTokens: number;
}

/** Our server on a folder, from source. */
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

/** Throws when a request fails, or an answer is not as long as was asked for. */
export async function loadServer(url: string, crowd: Crowd): Promise<LoadReport> {
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

/** The faster of llama-server's configurations: flash attention on or off, a slot per client or as many as it takes by
 *  itself. */
export async function loadLlama(
  program: string,
  gguf: string,
  threads: number,
  crowd: Crowd,
): Promise<{ readonly report: LoadReport; readonly with: string }> {
  const contextTokens = crowd.sharedTokens + crowd.ownTokens + crowd.outputTokens + 128;
  let best: { report: LoadReport; with: string } | null = null;
  for (const slots of [crowd.clients, null]) {
    for (const flash of flashChoices) {
      const server = await startLlamaServer(program, gguf, threads, { slots, contextTokens, flash });
      const report = await loadServer(server.url, crowd).finally(server.stop);
      if (best === null || report.outputTokensPerSecond > best.report.outputTokensPerSecond) {
        best = { report, with: `${slots === null ? "" : `-np ${slots} `}-fa ${flash}` };
      }
    }
  }
  return best!;
}

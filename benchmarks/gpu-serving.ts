/**
 * 8B model on a GPU, through the server: decoding with 1, 32 and 128 clients, compared with the lower bound
 * of a step. That is reading the weights and the keys and values once, at the speed at which the GPU copies
 * memory.
 *
 *   bun benchmarks/gpu-serving.ts <folder of Llama-3.1-8B> [--copy TB/s, as bunting_bench_cuda prints it]
 *                                 [--device cuda:0] [--tiny: a few tokens, for any model]
 *
 * With random weights tokens have no useful text, so times between tokens are those of the server's chunks.
 * The share outside native code is of all wall time while nearly all clients have a running sequence.
 */

import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { listModels, type Target } from "../server/cli/client.ts";
import { type LoadReport, runLoad } from "../server/cli/load.ts";
import { startServer, watchEngine } from "./started-server.ts";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: {
    copy: { type: "string", default: "" },
    device: { type: "string", default: "cuda:0" },
    tiny: { type: "boolean", default: false },
  },
});
const PROMPT_TOKENS = values.tiny ? 16 : 128;
const OUTPUT_TOKENS = values.tiny ? 4 : 256;
const REQUESTS_PER_CLIENT = values.tiny ? 1 : 3;
const CLIENTS = values.tiny ? [1, 2] : [1, 32, 128];

/**
 * Bytes that each step reads: all matrices in bf16 except the embedding table, of which it reads single rows.
 */
const WEIGHT_BYTES = 2 * (8_030_261_248 - 128_256 * 4096);
/** Bytes of keys and values of a token: 32 layers, 8 heads of 128. */
const KV_BYTES = 2 * 32 * 8 * 128 * 2;

const [folder] = positionals;
if (folder === undefined) {
  console.error("gpu-serving.ts wants the folder of the model.");
  process.exit(2);
}
const root = resolve(import.meta.dir, "..");
const server = await startServer(
  [process.execPath, join(root, "server/main.ts"), "serve", resolve(folder), "--device", values.device],
  root,
);

const [model] = await listModels(server.target);

function load(target: Target, clients: number): Promise<LoadReport> {
  const plan = {
    model: model!,
    requests: clients * REQUESTS_PER_CLIENT,
    arrivals: { kind: "closed", clients },
    promptTokens: PROMPT_TOKENS,
    sharedPrefixTokens: 0,
    outputTokens: OUTPUT_TOKENS,
    ignoreEos: true,
    seed: clients,
  } as const;
  return runLoad(target, plan, () => {}, new AbortController().signal);
}

/** Lower bound of a step of `clients` decodes, in milliseconds; null without the speed of copying. */
function floorMs(clients: number): number | null {
  const bytesPerMs = Number(values.copy) * 1e9;
  const context = PROMPT_TOKENS + OUTPUT_TOKENS / 2;
  return bytesPerMs > 0 ? (WEIGHT_BYTES + clients * context * KV_BYTES) / bytesPerMs : null;
}

console.log(
  "| Clients | per token p50 ms | p99 ms | tokens/s | the least ms | of the least | outside native code |",
);
console.log("|---|---|---|---|---|---|---|");
await load(server.target, 1); // warms up the just-in-time compiler
let failed = 0;
for (const clients of CLIENTS) {
  const watch = watchEngine(server.target, Math.ceil(0.9 * clients));
  const report = await load(server.target, clients);
  const outside = await watch.stop();
  const least = floorMs(clients);
  const p50 = report.perTokenMs?.p50 ?? Number.NaN;
  const percent = (share: number | null): string => (share === null ? "–" : `${(100 * share).toFixed(1)} %`);
  console.log(
    `| ${clients} | ${p50.toFixed(2)} | ${(report.perTokenMs?.p99 ?? Number.NaN).toFixed(2)} | ` +
      `${report.outputTokensPerSecond.toFixed(0)} | ${least?.toFixed(2) ?? "–"} | ` +
      `${percent(least === null ? null : least / p50)} | ${percent(outside)} |`,
  );
  failed += report.failed;
}
await server.stop();
if (failed > 0) console.error(`${failed} requests failed.`);
process.exit(failed > 0 ? 1 : 0);

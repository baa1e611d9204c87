/** Recipes of the devices in scheduler/cost/profiles/, fitted from the traces' folder. */

import { join } from "node:path";
import type { ProfileTable } from "../../scheduler/cost/profile.ts";
import { type Recipe, tableOf } from "./recipe.ts";

const LAYERS = 32;
const notMeasured = { stepMs: 0, sequenceMs: 0 };

/**
 * Tables by file name. `traces` holds llmservingsim/, vidur-profiling/ and vidur-profiling-cpu/, copies of
 * the source repositories that the tables name.
 */
export function knownTables(traces: string): Readonly<Record<string, ProfileTable>> {
  const overhead = join(traces, "vidur-profiling-cpu/a100/cpu_overheads.csv");
  const a100: Recipe = {
    name: "A100 80 GB, Mistral-7B shape",
    source:
      "microsoft/vidur 7d47513 (Meta-Llama-3-8B/mlp.csv, one device) and e2d00e9 (attention.csv, 64 query and 8 key-value heads over two devices, key-value bytes doubled); b09e4ff (cpu_overheads.csv, Llama-2-7b). The head is by arithmetic: 262 MB of weights at 1.56 TB/s, and 200 TFLOP/s.",
    licence: "MIT",
    tileTokens: 256,
    pages: 24_560,
    contextMax: 8192,
    folders: ["vidur-profiling/compute/a100/meta-llama/Meta-Llama-3-8B", "vidur-profiling/a100_old"].map(
      (folder) => join(traces, folder),
    ),
    layers: LAYERS,
    overhead,
    head: { stepMs: 0.168, sequenceMs: 0.00131 },
    // Measured with 32 query heads and 4 key-value heads per device; this shape has 8: twice the bytes, the
    // same products.
    kvTimes: 2,
    decode: null,
  };
  const rtx4090: Recipe = {
    name: "RTX 4090, Llama-3.1-8B shape",
    source:
      "casys-kaist/LLMServingSim 5daddb2 (profiler/perf/RTX4090: dense.csv, per_sequence.csv, attention.csv; vLLM 0.19.0). No overhead of a server's own code.",
    licence: "MIT",
    tileTokens: 128,
    pages: 2588,
    contextMax: 32_768,
    folders: [join(traces, "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1")],
    layers: LAYERS,
    overhead: null,
    head: notMeasured,
    kvTimes: 1,
    decode: null,
  };
  const consumer = tableOf(rtx4090);
  const a6000: Recipe = {
    ...rtx4090,
    name: "RTX A6000, Llama-3.1-8B shape",
    source:
      "casys-kaist/LLMServingSim 5daddb2 (profiler/v0, A6000: layers.csv, prefill rows of attention.csv). Its decode rows were measured with a kernel that reads keys and values once per query head, four times what is needed; decode attention is that of the RTX 4090 profile over the memory bandwidths, 1008 and 768 GB/s. Overhead as of the A100 (microsoft/vidur b09e4ff).",
    pages: 12_407,
    folders: [join(traces, "llmservingsim/profiler/v0/perf_models/A6000/meta-llama/Llama-3.1-8B/tp1")],
    overhead,
    decode: { table: consumer, times: 1008 / 768 },
  };
  return {
    "a100-mistral-7b": tableOf(a100),
    "a6000-llama-8b": tableOf(a6000),
    "rtx4090-llama-8b": consumer,
  };
}

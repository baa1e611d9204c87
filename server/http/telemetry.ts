import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { EngineId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { PlacementReason } from "../../scheduler/fleet/placement.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";

/**
 * What the server tells of itself, as Prometheus text. Names that begin with `vllm:` are those that dashboards and
 * endpoint pickers read, with vLLM's meaning, labels and buckets; `bunting_` are our own, finer where theirs are coarse.
 * State and totals of the engines are read when somebody asks, so that they cost nothing in between.
 */

const latencyBuckets = [
  0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680,
];
const firstTokenBuckets = [
  0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640,
  2560,
];
const betweenTokensBuckets = [
  0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
];
const fineBuckets = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1,
  2, 5, 10,
];
const stepTokensBuckets = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const choicesBuckets = [1, 2, 5, 10, 20, 50, 128];
const httpBuckets = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300];

/** vLLM's words for how a choice ended. */
export type FinishLabel = "stop" | "length" | "abort" | "error";

export interface TelemetryOptions {
  readonly modelName: string;
  readonly version: string;
  readonly specs: readonly DeviceSpec[];
  /** Current loads, by engine id. */
  readonly loads: () => readonly EngineLoad[];
  /** How far each engine's steps are from what is predicted, by engine id: see OnlineCostModel's margin. */
  readonly predictionErrors: () => readonly number[];
}

interface StepSeen {
  step: number;
}

export class Telemetry {
  readonly #registry = new Registry();
  readonly #modelName: string;
  readonly #requestLabels: Readonly<Record<"model_name" | "engine", string>>;
  readonly #lastStep: StepSeen[];
  readonly #finished: Counter<"model_name" | "engine" | "finished_reason">;
  readonly #placements: Counter<"engine" | "reason">;
  readonly #restarts: Counter<"engine">;
  readonly #http: Counter<"handler" | "method" | "status">;
  readonly #httpSeconds: Histogram<"handler" | "method">;
  readonly #stepTokens: Histogram<"model_name" | "engine">;
  readonly #stepSeconds: Histogram<"engine" | "part">;
  readonly #request: Readonly<Record<RequestHistogram, Histogram<"model_name" | "engine">>>;

  constructor(options: TelemetryOptions) {
    this.#modelName = options.modelName;
    // A request's engine is the fleet's business; with one engine there is nothing to ask.
    this.#requestLabels = {
      model_name: options.modelName,
      engine: options.specs.length === 1 ? "0" : "all",
    };
    this.#lastStep = options.specs.map(() => ({ step: 0 }));
    this.#registerEngines(options);
    const registers = [this.#registry];
    this.#finished = new Counter({
      name: "vllm:request_success_total",
      help: "Choices that ended, by reason.",
      labelNames: ["model_name", "engine", "finished_reason"],
      registers,
    });
    this.#placements = new Counter({
      name: "bunting_placements_total",
      help: "Sequences placed on an engine, by why it was chosen.",
      labelNames: ["engine", "reason"],
      registers,
    });
    this.#restarts = new Counter({
      name: "bunting_engine_restarts_total",
      help: "Lost engines that were replaced.",
      labelNames: ["engine"],
      registers,
    });
    options.specs.forEach((_, engine) => {
      this.#restarts.inc({ engine: String(engine) }, 0);
    });
    this.#http = new Counter({
      name: "http_requests_total",
      help: "HTTP requests answered.",
      labelNames: ["handler", "method", "status"],
      registers,
    });
    this.#httpSeconds = new Histogram({
      name: "http_request_duration_seconds",
      help: "From a request's head to the head of its answer.",
      labelNames: ["handler", "method"],
      buckets: httpBuckets,
      registers,
    });
    this.#stepTokens = new Histogram({
      name: "vllm:iteration_tokens_total",
      help: "Tokens in a step.",
      labelNames: ["model_name", "engine"],
      buckets: stepTokensBuckets,
      registers,
    });
    this.#stepSeconds = new Histogram({
      name: "bunting_step_seconds",
      help: "Time of a step: inside the device, and from its start to its report.",
      labelNames: ["engine", "part"],
      buckets: fineBuckets,
      registers,
    });
    const histogram = ([name, help, buckets]: readonly [string, string, readonly number[]]) =>
      new Histogram({ name, help, labelNames: ["model_name", "engine"], buckets: [...buckets], registers });
    this.#request = mapValues(requestHistograms, histogram);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** The whole exposition. */
  text(): Promise<string> {
    return this.#registry.metrics();
  }

  /** After each report of an engine. A report without a new step counts nothing. */
  observeStep(engine: EngineId, load: EngineLoad): void {
    const last = this.#lastStep[engine];
    if (last === undefined || load.stepsTotal === last.step) return;
    last.step = load.stepsTotal;
    this.#stepTokens.observe({ model_name: this.#modelName, engine: String(engine) }, load.stepTokens);
    this.#stepSeconds.observe({ engine: String(engine), part: "device" }, load.deviceMs / 1000);
    this.#stepSeconds.observe({ engine: String(engine), part: "whole" }, load.stepMs / 1000);
  }

  countPlacement(engine: EngineId, reason: PlacementReason): void {
    this.#placements.inc({ engine: String(engine), reason });
  }

  countRestart(engine: EngineId): void {
    this.#restarts.inc({ engine: String(engine) });
  }

  observeHttp(handler: string, method: string, status: number, seconds: number): void {
    this.#http.inc({ handler, method, status: String(status) });
    this.#httpSeconds.observe({ handler, method }, seconds);
  }

  observeRequest(name: RequestHistogram, value: number): void {
    this.#request[name].observe(this.#requestLabels, value);
  }

  countFinished(reason: FinishLabel, choices = 1): void {
    if (choices > 0) this.#finished.inc({ ...this.#requestLabels, finished_reason: reason }, choices);
  }

  #registerEngines({ modelName, version, specs, loads, predictionErrors }: TelemetryOptions): void {
    const registers = [this.#registry];
    const labelNames = ["model_name", "engine"] as const;
    const labels = (engine: number) => ({ model_name: modelName, engine: String(engine) });

    for (const [name, help, read] of engineGauges) {
      new Gauge({
        name,
        help,
        labelNames,
        registers,
        collect() {
          loads().forEach((load, engine) => {
            this.set(labels(engine), read(load));
          });
        },
      });
    }
    for (const [name, help, read] of engineTotals) {
      new Counter({
        name,
        help,
        labelNames,
        registers,
        collect() {
          this.reset();
          loads().forEach((load, engine) => {
            this.inc(labels(engine), read(load));
          });
        },
      });
    }
    new Gauge({
      name: "bunting_step_prediction_error",
      help: "Share of its predicted time by which 19 of 20 steps exceed it at most.",
      labelNames,
      registers,
      collect() {
        predictionErrors().forEach((error, engine) => {
          this.set(labels(engine), error);
        });
      },
    });
    const cacheConfig = new Gauge({
      name: "vllm:cache_config_info",
      help: "Size of the KV cache: tokens per page and number of pages.",
      labelNames: [...labelNames, "block_size", "num_gpu_blocks"],
      registers,
    });
    specs.forEach((spec, engine) => {
      const size = { block_size: String(spec.pageTokens), num_gpu_blocks: String(spec.pages) };
      cacheConfig.set({ ...labels(engine), ...size }, 1);
    });
    const build = new Gauge({
      name: "bunting_build_info",
      help: "Version of the server.",
      labelNames: ["version"],
      registers,
    });
    build.set({ version }, 1);
  }
}

type EngineSeries = readonly [name: string, help: string, read: (load: EngineLoad) => number];

const engineGauges: readonly EngineSeries[] = [
  ["vllm:num_requests_running", "Sequences that are being computed.", (load) => load.running],
  ["vllm:num_requests_waiting", "Sequences that wait to be admitted.", (load) => load.waiting],
  ["vllm:kv_cache_usage_perc", "Share of KV pages owned by sequences, 0 to 1.", usedShare],
  ["bunting_sequences_paused", "Sequences whose readers are slow.", (load) => load.paused],
  ["bunting_pages_free", "KV pages that hold nothing.", (load) => load.pagesFree],
  ["bunting_pages_cached", "KV pages that only the prefix cache holds.", (load) => load.pagesCached],
  ["bunting_pages_owned", "KV pages that sequences hold.", pagesOwned],
  ["bunting_prompt_tokens_pending", "Prompt tokens still to compute.", (load) => load.tokensPending],
];

const engineTotals: readonly EngineSeries[] = [
  [
    "vllm:prompt_tokens_total",
    "Prompt tokens computed or found in the cache.",
    (load) => load.promptTokensTotal,
  ],
  ["vllm:generation_tokens_total", "Tokens generated.", (load) => load.generatedTokensTotal],
  [
    "vllm:prefix_cache_queries_total",
    "Prompt tokens looked up in the prefix cache.",
    (load) => load.prefixQueriedTotal,
  ],
  ["vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", (load) => load.prefixHitTotal],
  [
    "vllm:num_preemptions_total",
    "Sequences that lost their pages to others.",
    (load) => load.preemptionsTotal,
  ],
  ["bunting_steps_total", "Steps computed.", (load) => load.stepsTotal],
  [
    "bunting_steps_over_target_total",
    "Steps that kept a stream waiting longer than its target.",
    (load) => load.stepsOverTarget,
  ],
  [
    "bunting_skipped_decodes_total",
    "Decodes left out of a step so that it keeps a stream's target.",
    (load) => load.skippedDecodesTotal,
  ],
  ["bunting_evicted_pages_total", "Cached pages given up for others.", (load) => load.evictedPagesTotal],
];

function pagesOwned(load: EngineLoad): number {
  return load.pagesTotal - load.pagesFree - load.pagesCached;
}

function usedShare(load: EngineLoad): number {
  return load.pagesTotal === 0 ? 0 : pagesOwned(load) / load.pagesTotal;
}

/** 1, 2, 5, 10, 20, 50 … up to 200,000, as vLLM counts tokens. */
const tokensBuckets = [1, 10, 100, 1000, 10_000, 100_000]
  .flatMap((ten) => [ten, 2 * ten])
  .concat([5, 50, 500, 5000, 50_000])
  .sort((a, b) => a - b);

const requestHistograms = {
  firstToken: [
    "vllm:time_to_first_token_seconds",
    "From a request's arrival to its first token.",
    firstTokenBuckets,
  ],
  firstTokenFine: ["bunting_time_to_first_token_seconds", "The same in finer buckets.", fineBuckets],
  betweenTokens: [
    "vllm:inter_token_latency_seconds",
    "Between two tokens of a choice.",
    betweenTokensBuckets,
  ],
  betweenTokensFine: ["bunting_inter_token_seconds", "The same in finer buckets.", fineBuckets],
  endToEnd: ["vllm:e2e_request_latency_seconds", "From a request's arrival to its end.", latencyBuckets],
  queue: ["vllm:request_queue_time_seconds", "From arrival to admission.", latencyBuckets],
  inference: ["vllm:request_inference_time_seconds", "From admission to the end.", latencyBuckets],
  prefill: ["vllm:request_prefill_time_seconds", "From admission to the first token.", latencyBuckets],
  decode: ["vllm:request_decode_time_seconds", "From the first token to the end.", latencyBuckets],
  promptTokens: ["vllm:request_prompt_tokens", "Prompt tokens of a request.", tokensBuckets],
  generationTokens: ["vllm:request_generation_tokens", "Tokens generated for a request.", tokensBuckets],
  longestChoice: [
    "vllm:request_max_num_generation_tokens",
    "Tokens generated for the longest choice of a request.",
    tokensBuckets,
  ],
  choices: ["vllm:request_params_n", "Choices asked for.", choicesBuckets],
  tokensMax: ["vllm:request_params_max_tokens", "Most tokens asked for.", tokensBuckets],
} as const satisfies Record<string, readonly [string, string, readonly number[]]>;

export type RequestHistogram = keyof typeof requestHistograms;

function mapValues<Key extends string, From, To>(
  record: Readonly<Record<Key, From>>,
  change: (value: From) => To,
): Record<Key, To> {
  const entries = Object.entries<From>(record).map(([key, value]) => [key, change(value)]);
  return Object.fromEntries(entries) as Record<Key, To>;
}

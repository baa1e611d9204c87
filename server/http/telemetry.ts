import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { EngineId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { causes } from "../../scheduler/explain/causes.ts";
import type { PlacementReason } from "../../scheduler/fleet/placement.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import type { SessionObserver } from "../../scheduler/session/session-keeper.ts";
import type { CacheOutcome } from "../answer/cache-outcome.ts";
import type { Usage } from "../answer/events.ts";
import type { StoreCounts } from "../kv-disk/store-counts.ts";
import type { Traces } from "../trace/traces.ts";
import type { KeyUse, LabelledUse, UseSums } from "../usage/use.ts";
import { AnswerHistogram, type BucketCounts } from "./answer-histogram.ts";
import type { RequestLog } from "./request-log.ts";
import { processMetrics, Scrape } from "./scrape.ts";

/**
 * Metrics of the server, as Prometheus text. Names that begin with `vllm:` are those that dashboards and
 * endpoint pickers read, with vLLM's meaning, labels and buckets. Names that begin with `bunting_` are our
 * own, finer where theirs are coarse. State and totals of the engines are read at a scrape, so that they cost
 * nothing in between.
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
/** 1, 2, 5, 10, 20, 50 … up to 200,000, as vLLM counts tokens. */
const tokensBuckets = [1, 10, 100, 1000, 10_000, 100_000]
  .flatMap((ten) => [ten, 2 * ten])
  .concat([5, 50, 500, 5000, 50_000])
  .sort((a, b) => a - b);

const ofEngine = ["model_name", "engine"] as const;

type CounterRow = readonly [name: string, help: string, labels: readonly string[]];
type HistogramRow = readonly [...CounterRow, buckets: readonly number[]];
/** Histogram of an answer; all answers share its labels. */
type AnswerRow = readonly [name: string, help: string, buckets: readonly number[]];
type EngineRow = readonly [name: string, help: string, read: (load: EngineLoad) => number];

/** Metrics counted at each event. */
const counters = {
  finished: [
    "vllm:request_success_total",
    "Choices that ended, by reason.",
    [...ofEngine, "finished_reason"],
  ],
  placements: ["bunting_placements_total", "Sequences placed, by engine and reason.", ["engine", "reason"]],
  tokens: [
    "bunting_work_tokens_total",
    "Tokens of answers that have ended, of requests and of jobs: prompt_computed, prompt_cached, generated.",
    ["work", "part"],
  ],
  cacheMisses: [
    "bunting_cache_miss_total",
    "Prompts of which the prefix cache lacked tokens, by reason; a prompt may have several.",
    ["reason"],
  ],
  cacheMissTokens: [
    "bunting_cache_miss_tokens_total",
    "Prompt tokens that the prefix cache lacked, by reason.",
    ["reason"],
  ],
  sessionTurns: [
    "bunting_session_turns_total",
    "Prompts of sessions, by what told their session: continued, branched, named, new.",
    ["by"],
  ],
  sessionsKept: [
    "bunting_sessions_kept_total",
    "Sessions whose pages were kept between turns: kept, then returned or given_up.",
    ["event"],
  ],
  causes: [
    "bunting_request_seconds_total",
    "Time of requests that have ended, from their heads to their last bytes, by cause.",
    ["cause"],
  ],
  restarts: ["bunting_engine_restarts_total", "Lost engines that were replaced.", ["engine"]],
  disk: [
    "bunting_kv_disk_total",
    "KV pages on disk: stored, read, damaged, failedReads, failedWrites; and droppedSegments, files of pages.",
    ["engine", "event"],
  ],
  http: ["http_requests_total", "HTTP requests answered.", ["handler", "method", "status"]],
} as const satisfies Record<string, CounterRow>;

const serverHistograms = {
  httpSeconds: [
    "http_request_duration_seconds",
    "From a request's head to the head of its answer.",
    ["handler", "method"],
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 60, 300],
  ],
  stepTokens: ["vllm:iteration_tokens_total", "Tokens in a step.", ofEngine, stepTokensBuckets],
  stepSeconds: [
    "bunting_step_seconds",
    "Time of a step: inside the device, and from its start to its report.",
    ["engine", "part"],
    fineBuckets,
  ],
} as const satisfies Record<string, HistogramRow>;

/** Histograms of an answer. */
const answerHistograms = {
  firstToken: ["vllm:time_to_first_token_seconds", "From arrival to the first token.", firstTokenBuckets],
  firstTokenFine: ["bunting_time_to_first_token_seconds", "The same in finer buckets.", fineBuckets],
  betweenTokens: ["vllm:inter_token_latency_seconds", "Between two tokens.", betweenTokensBuckets],
  betweenTokensFine: ["bunting_inter_token_seconds", "The same in finer buckets.", fineBuckets],
  endToEnd: ["vllm:e2e_request_latency_seconds", "From arrival to the end.", latencyBuckets],
  queue: ["vllm:request_queue_time_seconds", "From arrival to admission.", latencyBuckets],
  inference: ["vllm:request_inference_time_seconds", "From admission to the end.", latencyBuckets],
  prefill: ["vllm:request_prefill_time_seconds", "From admission to first token.", latencyBuckets],
  decode: ["vllm:request_decode_time_seconds", "From first token to end.", latencyBuckets],
  promptTokens: ["vllm:request_prompt_tokens", "Prompt tokens.", tokensBuckets],
  generationTokens: ["vllm:request_generation_tokens", "Tokens generated.", tokensBuckets],
  longestChoice: [
    "vllm:request_max_num_generation_tokens",
    "Tokens generated for the longest choice.",
    tokensBuckets,
  ],
  choices: ["vllm:request_params_n", "Choices asked for.", [1, 2, 5, 10, 20, 50, 128]],
  tokensMax: ["vllm:request_params_max_tokens", "Most tokens asked for.", tokensBuckets],
} as const satisfies Record<string, AnswerRow>;

/** Metrics read at a scrape. */
const engineGauges: readonly EngineRow[] = [
  ["vllm:num_requests_running", "Sequences that are being computed.", (load) => load.running],
  ["vllm:num_requests_waiting", "Sequences that wait to be admitted.", (load) => load.waiting],
  ["vllm:kv_cache_usage_perc", "Share of KV pages owned by sequences, 0 to 1.", usedShare],
  ["bunting_sequences_paused", "Sequences whose readers are slow.", (load) => load.paused],
  ["bunting_pages_free", "KV pages that hold nothing.", (load) => load.pagesFree],
  ["bunting_pages_cached", "KV pages that only the prefix cache holds.", (load) => load.pagesCached],
  ["bunting_pages_owned", "KV pages that sequences hold.", pagesOwned],
  ["bunting_states_free", "State slots that hold nothing.", (load) => load.statesFree],
  ["bunting_states_kept", "State slots that checkpoints hold.", (load) => load.checkpoints],
  ["bunting_states_owned", "State slots that sequences hold.", statesOwned],
  ["bunting_prompt_tokens_pending", "Prompt tokens still to compute.", (load) => load.tokensPending],
];

const engineTotals: readonly EngineRow[] = [
  ["vllm:prompt_tokens_total", "Prompt tokens computed or cached.", (load) => load.promptTokensTotal],
  ["vllm:generation_tokens_total", "Tokens generated.", (load) => load.generatedTokensTotal],
  ["vllm:prefix_cache_queries_total", "Prompt tokens looked up.", (load) => load.prefixQueriedTotal],
  ["vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", (load) => load.prefixHitTotal],
  ["vllm:num_preemptions_total", "Sequences that lost their pages.", (load) => load.preemptionsTotal],
  ["vllm:spec_decode_num_drafts_total", "Drafts checked.", (load) => load.draftsTotal],
  ["vllm:spec_decode_num_draft_tokens_total", "Tokens of drafts checked.", (load) => load.draftTokensTotal],
  [
    "vllm:spec_decode_num_accepted_tokens_total",
    "Tokens of drafts that were right.",
    (load) => load.acceptedTokensTotal,
  ],
  ["bunting_steps_total", "Steps computed.", (load) => load.stepsTotal],
  ["bunting_steps_over_target_total", "Steps that made a stream late.", (load) => load.stepsOverTarget],
  ["bunting_skipped_decodes_total", "Decodes left out of a step.", (load) => load.skippedDecodesTotal],
  ["bunting_evicted_pages_total", "Cached pages given up for others.", (load) => load.evictedPagesTotal],
  ["bunting_tier_stored_pages_total", "Pages stored on the tier.", (load) => load.tierStoredPagesTotal],
  ["bunting_tier_found_pages_total", "Pages that lookups found there.", (load) => load.tierFoundPagesTotal],
  ["bunting_tier_loaded_pages_total", "Pages loaded from it.", (load) => load.tierLoadedPagesTotal],
  ["bunting_tier_short_loads_total", "Loads with lost pages.", (load) => load.tierShortLoadsTotal],
];

type KeyRow = readonly [
  name: string,
  help: string,
  label: string | null,
  read: (sums: UseSums) => Readonly<Record<string, number>>,
];

/** Use of keys; `label` tells the parts of a row's values apart. */
const keyTotals: readonly KeyRow[] = [
  [
    "bunting_key_requests_total",
    "Requests of a key that have ended, by outcome.",
    "outcome",
    ({ answered, failed, cancelled }) => ({ answered, failed, cancelled }),
  ],
  [
    "bunting_key_tokens_total",
    "Tokens of a key's requests: prompt_computed, prompt_cached, generated.",
    "part",
    ({ promptTokens, cachedTokens, completionTokens: generated }) => {
      return { prompt_computed: promptTokens - cachedTokens, prompt_cached: cachedTokens, generated };
    },
  ],
  [
    "bunting_key_device_seconds_total",
    "Time that the steps of a key's requests would have taken without others in them.",
    null,
    ({ deviceMs }) => ({ all: deviceMs / 1000 }),
  ],
];

/** Measure of an answer. */
export type RequestHistogram = keyof typeof answerHistograms;

/** vLLM's words for the end of a choice. */
export type FinishLabel = "stop" | "length" | "abort" | "error";

/**
 * Longest time in which the thread served no client, and the most that it computed in such a time. The rest
 * it waited for a processor.
 */
export interface Gap {
  readonly wholeMs: number;
  readonly computingMs: number;
}

/** Observed waits of clients in seconds. */
export interface Latencies {
  readonly firstToken: BucketCounts;
  readonly betweenTokens: BucketCounts;
}

export interface TelemetryOptions {
  readonly modelName: string;
  readonly version: string;
  /**
   * Metrics to expose: of a server with one model by default; else of a server apart from its models, or of
   * one model, with its name as a label of every metric.
   */
  readonly scope?: "all" | "server" | "model";
  readonly specs: readonly DeviceSpec[];
  /** Absent: requests are not logged. */
  readonly log?: RequestLog | null;
  /** Ledger of keys. */
  readonly ledger: KeyUse;
  /** Absent: requests are not traced. */
  readonly traces?: Traces | null;
  /** Current loads, by engine id. */
  readonly loads: () => readonly EngineLoad[];
  /** Deviation of each engine's steps from their prediction, by engine id: see OnlineCostModel's margin. */
  readonly predictionErrors: () => readonly number[];
  /** Worst gap of the HTTP thread in the last minute. */
  readonly gap: () => Gap;
  /** Time for which the same text of metrics is sent to all scrapers; absent: a second. */
  readonly metricsKeptMs?: number;
}

/** Origin of computed tokens: requests, whose clients wait, or jobs. */
export type Work = "requests" | "jobs";

export class Telemetry {
  readonly log: RequestLog | null;
  readonly ledger: KeyUse;
  readonly traces: Traces | null;
  readonly #registry = new Registry();
  readonly #registers = [this.#registry];
  readonly #scrape: Scrape;
  readonly #modelName: string;
  readonly #answerLabels: Readonly<Record<"model_name" | "engine", string>>;
  /** Number of the last step that was counted, by engine. */
  readonly #lastStep: number[];
  readonly #computed = { requests: 0, jobs: 0 };
  readonly #counters = mapValues(counters, (row) => this.#counter(row));
  readonly #server = mapValues(serverHistograms, (row) => this.#histogram(row));
  readonly #answers: Readonly<Record<RequestHistogram, AnswerHistogram>>;

  constructor({
    modelName,
    version,
    specs,
    loads,
    predictionErrors,
    gap,
    log,
    ledger,
    traces,
    metricsKeptMs,
    scope = "all",
  }: TelemetryOptions) {
    if (scope === "model") this.#registry.setDefaultLabels({ model_name: modelName });
    this.#scrape = new Scrape(() => this.#registry.metrics(), metricsKeptMs);
    this.log = log ?? null;
    this.ledger = ledger;
    this.traces = traces ?? null;
    this.#modelName = modelName;
    // The fleet chooses a request's engine, so the label is "all"; with one engine it is known.
    this.#answerLabels = { model_name: modelName, engine: specs.length === 1 ? "0" : "all" };
    this.#answers = mapValues(answerHistograms, (row) => this.#answerHistogram(row));
    this.#lastStep = specs.map(() => 0);
    for (const [name, help, read] of engineGauges) this.#gauge(name, help, () => loads().map(read));
    for (const [name, help, read] of engineTotals) this.#total(name, help, () => loads().map(read));
    this.#byPlace(loads);
    const help = "Share of its predicted time by which 99 of 100 steps exceed it at most.";
    this.#gauge("bunting_step_prediction_error", help, predictionErrors);
    const sizes = specs.map((spec, engine) => {
      const size = { block_size: String(spec.pageTokens), num_gpu_blocks: String(spec.pages) };
      return { ...this.#labels(engine), ...size };
    });
    this.#info("vllm:cache_config_info", "Size of the KV cache: tokens per page and number of pages.", sizes);
    for (const engine of specs.keys()) this.#counters.restarts.inc({ engine: String(engine) }, 0);
    if (scope === "model") return;
    this.#info("bunting_build_info", "Version of the server.", [{ version }]);
    const away = "time of the last minute in which the thread that serves HTTP did one thing";
    this.#plainGauge("bunting_thread_gap_seconds", `Longest ${away}.`, () => gap().wholeMs / 1000);
    const computing = `Longest that it computed in a ${away}; the rest it waited for a processor.`;
    this.#plainGauge("bunting_thread_gap_computing_seconds", computing, () => gap().computingMs / 1000);
    if (this.traces !== null) this.#spanCounts(this.traces);
    if (ledger.totals !== null) for (const row of keyTotals) this.#keyTotal(ledger.totals, row);
    for (const metric of processMetrics()) this.#registry.registerMetric(metric);
  }

  get contentType(): string {
    return this.#registry.contentType;
  }

  /** Whole exposition, a second old at most. */
  text(): Promise<string> {
    return this.#scrape.text();
  }

  /** Called after each report of an engine. A report without a new step counts nothing. */
  observeStep(engine: EngineId, load: EngineLoad): void {
    if (load.stepsTotal === this.#lastStep[engine]) return;
    this.#lastStep[engine] = load.stepsTotal;
    this.#server.stepTokens.observe(this.#labels(engine), load.stepTokens);
    this.#server.stepSeconds.observe({ engine: String(engine), part: "device" }, load.deviceMs / 1000);
    this.#server.stepSeconds.observe({ engine: String(engine), part: "whole" }, load.stepMs / 1000);
  }

  countPlacement(engine: EngineId, reason: PlacementReason): void {
    this.#counters.placements.inc({ engine: String(engine), reason });
  }

  /** Counts the tokens of an answer that has ended, of a request or of a job's line. */
  countTokens({ promptTokens, cachedTokens, completionTokens }: Usage, work: Work = "requests"): void {
    const { tokens } = this.#counters;
    tokens.inc({ work, part: "prompt_computed" }, promptTokens - cachedTokens);
    tokens.inc({ work, part: "prompt_cached" }, cachedTokens);
    tokens.inc({ work, part: "generated" }, completionTokens);
    this.#computed[work] += promptTokens - cachedTokens + completionTokens;
  }

  /** Counts what the prefix cache lacked of a prompt. */
  countCacheMisses({ misses }: CacheOutcome): void {
    for (const { reason, tokens } of misses) {
      this.#counters.cacheMisses.inc({ reason });
      this.#counters.cacheMissTokens.inc({ reason }, tokens);
    }
  }

  /** Counts what becomes of sessions. */
  readonly sessions: SessionObserver = {
    began: (by) => this.#counters.sessionTurns.inc({ by }),
    kept: (event) => this.#counters.sessionsKept.inc({ event }),
  };

  /** Counts the time of a request that has ended. */
  countCauses(ms: Float64Array): void {
    for (const [index, { name }] of causes.entries()) {
      if (ms[index]! > 0) this.#counters.causes.inc({ cause: name }, ms[index]! / 1000);
    }
  }

  /** Tokens computed for answers that have ended. */
  get computed(): Readonly<Record<Work, number>> {
    return this.#computed;
  }

  get latencies(): Latencies {
    return { firstToken: this.#answers.firstTokenFine, betweenTokens: this.#answers.betweenTokensFine };
  }

  countRestart(engine: EngineId): void {
    this.#counters.restarts.inc({ engine: String(engine) });
  }

  countDisk(engine: EngineId, counts: Readonly<StoreCounts>): void {
    for (const [event, count] of Object.entries(counts))
      this.#counters.disk.inc({ engine: String(engine), event }, count);
  }

  observeHttp(handler: string, method: string, status: number, seconds: number): void {
    this.#counters.http.inc({ handler, method, status: String(status) });
    this.#server.httpSeconds.observe({ handler, method }, seconds);
  }

  observeRequest(name: RequestHistogram, value: number): void {
    this.#answers[name].observe(value);
  }

  countFinished(reason: FinishLabel, choices = 1): void {
    if (choices > 0) this.#counters.finished.inc({ ...this.#answerLabels, finished_reason: reason }, choices);
  }

  #labels(engine: number) {
    return { model_name: this.#modelName, engine: String(engine) };
  }

  #counter([name, help, labelNames]: CounterRow): Counter<string> {
    return new Counter({ name, help, labelNames, registers: this.#registers });
  }

  #histogram([name, help, labelNames, buckets]: HistogramRow): Histogram<string> {
    return new Histogram({ name, help, labelNames, buckets: [...buckets], registers: this.#registers });
  }

  #answerHistogram([name, help, buckets]: AnswerRow): AnswerHistogram {
    const histogram = new AnswerHistogram(name, help, this.#answerLabels, buckets);
    this.#registry.registerMetric(histogram.metric);
    return histogram;
  }

  /** `read` returns a value for each engine. */
  #gauge(name: string, help: string, read: () => readonly number[]): void {
    const collect = (): void => {
      for (const [engine, value] of read().entries()) gauge.set(this.#labels(engine), value);
    };
    const gauge = new Gauge({ name, help, labelNames: ofEngine, registers: this.#registers, collect });
  }

  /** Gauge without labels. */
  #plainGauge(name: string, help: string, read: () => number): void {
    const gauge: Gauge = new Gauge({
      name,
      help,
      registers: this.#registers,
      collect: () => gauge.set(read()),
    });
  }

  #total(name: string, help: string, read: () => readonly number[]): void {
    const collect = (): void => {
      total.reset();
      for (const [engine, value] of read().entries()) total.inc(this.#labels(engine), value);
    };
    const total = new Counter({ name, help, labelNames: ofEngine, registers: this.#registers, collect });
  }

  /** Right tokens of drafts by their place. */
  #byPlace(loads: TelemetryOptions["loads"]): void {
    const collect = (): void => {
      total.reset();
      for (const [engine, { acceptedByPlace }] of loads().entries()) {
        for (const [position, count] of acceptedByPlace.entries())
          total.inc({ ...this.#labels(engine), position: String(position) }, count);
      }
    };
    const total: Counter<string> = new Counter({
      name: "vllm:spec_decode_num_accepted_tokens_per_pos_total",
      help: "Tokens of drafts that were right, by their place in the draft, from 0.",
      labelNames: [...ofEngine, "position"],
      registers: this.#registers,
      collect,
    });
  }

  #keyTotal(totals: LabelledUse, [name, help, label, read]: KeyRow): void {
    const collect = (): void => {
      total.reset();
      for (const [key, sums] of totals.byLabel()) {
        for (const [part, value] of Object.entries(read(sums)))
          total.inc(label === null ? { key } : { key, [label]: part }, value);
      }
    };
    const labelNames = label === null ? ["key"] : ["key", label];
    const total: Counter<string> = new Counter({
      name,
      help,
      labelNames,
      registers: this.#registers,
      collect,
    });
  }

  /** Spans by what became of them. */
  #spanCounts(traces: Traces): void {
    const collect = (): void => {
      total.reset();
      for (const [outcome, count] of Object.entries(traces.counts)) total.inc({ outcome }, count);
    };
    const total: Counter<string> = new Counter({
      name: "bunting_trace_spans_total",
      help: "Spans of traces: exported, failed (the collector did not take them), dropped (too many waited).",
      labelNames: ["outcome"],
      registers: this.#registers,
      collect,
    });
  }

  /** Constant facts, as labels. */
  #info(name: string, help: string, rows: readonly Readonly<Record<string, string>>[]): void {
    if (rows.length === 0) return;
    const labelNames = Object.keys(rows[0]!);
    const gauge = new Gauge({ name, help, labelNames, registers: this.#registers });
    for (const row of rows) gauge.set(row, 1);
  }
}

function pagesOwned(load: EngineLoad): number {
  return load.pagesTotal - load.pagesFree - load.pagesCached;
}

function statesOwned({ statesTotal, statesFree, checkpoints }: EngineLoad): number {
  return statesTotal - statesFree - checkpoints;
}

function usedShare(load: EngineLoad): number {
  return load.pagesTotal === 0 ? 0 : pagesOwned(load) / load.pagesTotal;
}

function mapValues<Key extends string, From, To>(
  record: Readonly<Record<Key, From>>,
  change: (value: From) => To,
): Record<Key, To> {
  const entries = Object.entries<From>(record).map(([key, value]) => [key, change(value)]);
  return Object.fromEntries(entries) as Record<Key, To>;
}

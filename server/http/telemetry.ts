import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { HostCounts } from "../../scheduler/cache/host-tier.ts";
import type { AdapterId, EngineId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { causes } from "../../scheduler/explain/causes.ts";
import type { PlacementReason } from "../../scheduler/fleet/placement.ts";
import type { PresentAdapters } from "../../scheduler/fleet/present-sequences.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import { keepingEvents, type SessionObserver } from "../../scheduler/session/session-keeper.ts";
import { type CacheOutcome, foundTokens } from "../answer/cache-outcome.ts";
import type { Usage } from "../answer/events.ts";
import type { StoreCounts } from "../kv-disk/store-counts.ts";
import type { Traces } from "../trace/traces.ts";
import type { KeyUse, LabelledUse } from "../usage/use.ts";
import { AnswerHistogram, type BucketCounts } from "./answer-histogram.ts";
import {
  type AnswerRow,
  answerHistograms,
  type CounterRow,
  counters,
  engineGauges,
  engineParts,
  engineTotals,
  type HistogramRow,
  type KeyRow,
  keyTotals,
  ofEngine,
  type PartRow,
  serverHistograms,
} from "./metric-rows.ts";
import type { RequestLog } from "./request-log.ts";
import { processMetrics, Scrape } from "./scrape.ts";

/**
 * Metrics of the server, as Prometheus text. Names that begin with `vllm:` are those that dashboards and
 * endpoint pickers read, with vLLM's meaning, labels and buckets. Names that begin with `bunting_` are our
 * own, finer where theirs are coarse. State and totals of the engines are read at a scrape, so that they cost
 * nothing in between.
 */

/** Maximum engines for which answer metrics have a label of their own: each adds many lines to a scrape. */
const APART_MAX = 8;
const EVERY_ENGINE = "all";

/** Name of a histogram that is observed for each answer. */
export type RequestHistogram = keyof typeof answerHistograms;

/** vLLM's words for the end of a choice. */
export type FinishLabel = "stop" | "length" | "abort" | "error";

/**
 * Longest time in which the HTTP thread was busy with one task and served no client, and the longest such time
 * on the processor. The thread waited for a processor during the rest.
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
  /** Adapters by name, and those of present sequences. Absent: there are none. */
  readonly adapters?: {
    readonly served: ReadonlyMap<string, { readonly id: AdapterId }>;
    present(): PresentAdapters;
  } | null;
  /** Longest gap of the HTTP thread in the last 30 to 60 seconds. */
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
  /** Values of the label `engine` of answer metrics, by engine; a single "all" if there are many engines. */
  readonly #answerEngines: readonly string[];
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
    adapters = null,
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
    this.#answerEngines =
      specs.length <= APART_MAX ? specs.map((_, engine) => String(engine)) : [EVERY_ENGINE];
    this.#answers = mapValues(answerHistograms, (row) => this.#answerHistogram(row));
    this.#lastStep = specs.map(() => 0);
    for (const [name, help, read] of engineGauges) this.#gauge(name, help, () => loads().map(read));
    for (const [name, help, read] of engineTotals) this.#total(name, help, () => loads().map(read));
    for (const row of engineParts) this.#parts(row, loads);
    this.#sleepState(loads);
    const help = "Share of its predicted time by which 99 of 100 steps exceed it at most.";
    this.#gauge("bunting_step_prediction_error", help, predictionErrors);
    const sizes = specs.map((spec, engine) => {
      const size = { block_size: String(spec.pageTokens), num_gpu_blocks: String(spec.pages) };
      return { ...this.#labels(engine), ...size };
    });
    if (adapters !== null) this.#adapterState(adapters);
    this.#info("vllm:cache_config_info", "Size of the KV cache: tokens per page and number of pages.", sizes);
    for (const engine of specs.keys()) this.#counters.restarts.inc({ engine: String(engine) }, 0);
    if (scope !== "server") this.#beginAtZero();
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

  /** Exposition text of all metrics, at most `metricsKeptMs` old. */
  text(): Promise<string> {
    return this.#scrape.text();
  }

  /** Called after each report of an engine. Ignores a report without a new step. */
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

  /** Counts the cached tokens of a prompt by source, and its misses by reason. */
  countCacheOutcome(outcome: CacheOutcome, engine: EngineId): void {
    const { memory: device, host, disk } = foundTokens(outcome);
    for (const [source, tokens] of Object.entries({ device, host, disk }))
      this.#counters.cachedPrompt.inc({ ...this.#labels(engine), source }, tokens);
    const { misses } = outcome;
    for (const { reason, tokens } of misses) {
      this.#counters.cacheMisses.inc({ reason });
      this.#counters.cacheMissTokens.inc({ reason }, tokens);
    }
  }

  /** Counts turns of sessions, and sessions whose pages are kept. */
  readonly sessions: SessionObserver = {
    began: (by) => this.#counters.sessionTurns.inc({ by }),
    kept: (event) => this.#counters.sessionsKept.inc({ event }),
  };

  /** Counts the time of a request that has ended. `ms`: milliseconds by index of `causes`. */
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

  countHost(engine: EngineId, counts: Readonly<HostCounts>): void {
    for (const [event, count] of Object.entries(counts))
      this.#counters.host.inc({ engine: String(engine), event }, count);
  }

  observeHttp(handler: string, method: string, status: number, seconds: number): void {
    this.#counters.http.inc({
      handler,
      method,
      status: `${Math.floor(status / 100)}xx`,
      code: String(status),
    });
    this.#server.httpSeconds.observe({ handler, method }, seconds);
  }

  /** `value`: in the histogram's unit. `engine`: the answer's; null: no engine admitted it. */
  observeRequest(name: RequestHistogram, value: number, engine: EngineId | null): void {
    this.#answers[name].observe(value, this.#answerEngine(engine));
  }

  countFinished(reason: FinishLabel, choices: number, engine: EngineId | null): void {
    const labels = { model_name: this.#modelName, engine: this.#answerEngine(engine) };
    if (choices > 0) this.#counters.finished.inc({ ...labels, finished_reason: reason }, choices);
  }

  #answerEngine(engine: EngineId | null): string {
    const { length } = this.#answerEngines;
    return length === 1 ? this.#answerEngines[0]! : (this.#answerEngines[engine ?? -1] ?? EVERY_ENGINE);
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
    const histogram = new AnswerHistogram(
      name,
      help,
      { model_name: this.#modelName },
      this.#answerEngines,
      buckets,
    );
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

  /** Initialises counters with known labels to 0, so that they have a rate before the first event. */
  #beginAtZero(): void {
    for (const reason of ["stop", "length", "abort", "error"] satisfies FinishLabel[])
      for (const engine of this.#answerEngines)
        this.#counters.finished.inc({ model_name: this.#modelName, engine, finished_reason: reason }, 0);
    for (const event of keepingEvents) this.#counters.sessionsKept.inc({ event }, 0);
    for (const source of ["device", "host", "disk"])
      for (const engine of this.#lastStep.keys())
        this.#counters.cachedPrompt.inc({ ...this.#labels(engine), source }, 0);
  }

  /** Metric of an engine with one more label: a counter if its name ends in `_total`, else a gauge. */
  #parts([name, help, label, read]: PartRow, loads: TelemetryOptions["loads"]): void {
    const labelNames = [...ofEngine, label];
    const collect = (): void => {
      metric.reset();
      for (const [engine, load] of loads().entries()) {
        for (const [part, value] of Object.entries(read(load)))
          metric.inc({ ...this.#labels(engine), [label]: part }, value);
      }
    };
    const options = { name, help, labelNames, registers: this.#registers, collect };
    const metric = name.endsWith("_total") ? new Counter(options) : new Gauge(options);
  }

  /** State of engines in vLLM's terms: a model that is not loaded sleeps, and its weights are gone. */
  #sleepState(loads: TelemetryOptions["loads"]): void {
    const collect = (): void => {
      const isAwake = loads().length > 0;
      const states = { awake: isAwake, weights_offloaded: false, discard_all: !isAwake };
      for (const engine of this.#lastStep.keys()) {
        for (const [state, holds] of Object.entries(states))
          gauge.set({ ...this.#labels(engine), sleep_state: state }, holds ? 1 : 0);
      }
    };
    const gauge: Gauge<string> = new Gauge({
      name: "vllm:engine_sleep_state",
      help: "Engines that are awake; those of a model that is not loaded are discard_all.",
      labelNames: [...ofEngine, "sleep_state"],
      registers: this.#registers,
      collect,
    });
  }

  /** Names of adapters with running and with waiting sequences. vLLM's readers take the newest of its series. */
  #adapterState({ served, present }: NonNullable<TelemetryOptions["adapters"]>): void {
    const namesOf = (ids: ReadonlySet<AdapterId>): string =>
      [...served].flatMap(([name, { id }]) => (ids.has(id) ? [name] : [])).join(",");
    const collect = (): void => {
      const { running, waiting } = present();
      const names = { running_lora_adapters: namesOf(running), waiting_lora_adapters: namesOf(waiting) };
      gauge.reset();
      gauge.set({ max_lora: String(served.size), ...names }, Date.now() / 1000);
    };
    const gauge: Gauge<string> = new Gauge({
      name: "vllm:lora_requests_info",
      help: "LoRA adapters with running and with waiting sequences; the value is the time.",
      labelNames: ["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
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

  /** Counter of trace spans by outcome. */
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

function mapValues<Key extends string, From, To>(
  record: Readonly<Record<Key, From>>,
  change: (value: From) => To,
): Record<Key, To> {
  const entries = Object.entries<From>(record).map(([key, value]) => [key, change(value)]);
  return Object.fromEntries(entries) as Record<Key, To>;
}

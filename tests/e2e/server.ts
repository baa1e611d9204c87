/**
 * Whole server inside the test: real sockets, tokenizer, template and scheduler, on the simulated device. Its
 * tokens depend on prompt and seed alone, so that two answers can be compared whatever ran beside them.
 */
import { join } from "node:path";
import type { Clock } from "../../base/clock.ts";
import type { Pooling } from "../../base/token.ts";
import { ConstrainedDevice } from "../../gpu/constrained-device.ts";
import { type Script, SimulatedDevice } from "../../gpu/simulated/device.ts";
import { readModelConfig } from "../../model/config.ts";
import { openModelFolder } from "../../model/folder.ts";
import type { EngineId, Step, StepResult } from "../../scheduler/core.ts";
import { type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { type EngineSettings, settingsOf } from "../../scheduler/engine/engine-options.ts";
import { type EngineLink, Fleet } from "../../scheduler/fleet/fleet.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Generator } from "../../server/answer/generator.ts";
import { readProgramModels } from "../../server/api/programs/files.ts";
import { KeptResponses } from "../../server/api/responses/kept.ts";
import type { StoreLimits } from "../../server/api/responses/store.ts";
import { composeServer } from "../../server/compose.ts";
import type { ReasoningField } from "../../server/config.ts";
import { ConstraintCompiler } from "../../server/grammar/compiler.ts";
import { ActivityLog } from "../../server/http/activity.ts";
import { ApiKeys, cacheSalts, type KeySources } from "../../server/http/auth.ts";
import { ThreadGap } from "../../server/http/gap.ts";
import { JsonReader } from "../../server/http/json/reader.ts";
import { Lifecycle } from "../../server/http/lifecycle.ts";
import { defaultHttpLimits, type HttpLimits } from "../../server/http/limits.ts";
import { HttpServer } from "../../server/http/server.ts";
import { PlacementLog } from "../../server/http/state.ts";
import { Telemetry } from "../../server/http/telemetry.ts";
import { limitUnsent } from "../../server/http/unsent.ts";
import { type JobService, openStore } from "../../server/jobs/service.ts";
import type { HostLimits } from "../../server/program/limits.ts";
import type { Programs } from "../../server/program/programs.ts";
import { aboutOf, type ServedAdapters } from "../../server/request/served-model.ts";
import { Encoder } from "../../server/text/encoder.ts";
import type { Traces } from "../../server/trace/traces.ts";
import { UsageLedger } from "../../server/usage/ledger.ts";
import { fillFormOf } from "../../text/fill.ts";
import { publicTokens, textVocabulary } from "../../text/model-text.ts";
import { ChatTemplate } from "../../text/template.ts";
import { readTemplateSource } from "../../text/template-source.ts";
import { loadTokenizer, type Tokenizer } from "../../text/tokenizer.ts";
import { type Says, scriptOf } from "../support/script.ts";

export const demoFolder = join(import.meta.dir, "../../models/demo");

export interface TestServerOptions {
  /** Milliseconds per step; every step also takes 10 µs per token. */
  readonly stepMs?: number;
  /** Cost model of the engine; absent: that of an unknown device. */
  readonly estimated?: LinearCost;
  readonly spec?: Partial<DeviceSpec>;
  /** Number of engines, all on this thread; by default 1. */
  readonly engines?: number;
  readonly tbtMs?: number;
  readonly engine?: EngineSettings;
  /** Replaces the engine; `tell` delivers its reports. */
  readonly link?: (tell: (report: EngineReport) => void) => EngineLink;
  /** Number of engines that programs see; there is one. */
  readonly reportedEngines?: number;
  readonly programLimits?: Partial<HostLimits>;
  /** Folder of programs served as models. */
  readonly programFolder?: string;
  readonly sharePrefixes?: boolean;
  /** False: prompts belong to no sessions. */
  readonly keepsSessions?: boolean;
  /** Public texts, whose cached prefixes all keys share. */
  readonly publicTexts?: readonly string[];
  readonly speaksParrot?: boolean;
  readonly reasoningField?: ReasoningField;
  readonly limits?: Partial<HttpLimits>;
  readonly keys?: Partial<KeySources>;
  /** True if the server listens on a loopback address only; by default true. */
  readonly loopbackOnly?: boolean;
  readonly corsOrigins?: readonly string[];
  readonly allowedHosts?: readonly string[];
  readonly fault?: (step: Step) => StepResult | null;
  /**
   * Answers of the model, in place of the simulated device's own tokens; in a list, seed s selects text s.
   */
  readonly answers?: readonly string[] | Says;
  /** Data folder of files and batches; absent: the server has none. */
  readonly data?: string;
  /** Bytes that files, batches and results may take; by default 1 GiB. */
  readonly storageBytesMax?: number;
  /** Unfinished batches of a key at most; by default 1000. */
  readonly unfinishedMax?: number;
  /** Limits of stored responses. */
  readonly responseLimits?: StoreLimits;
  /** Hook before each write to the store; may throw instead. */
  readonly onWrite?: (what: string) => void;
  /** Time limit to compile a constraint, in milliseconds. */
  readonly compileTimeoutMs?: number;
  /** True if the model answers to any name. */
  readonly answersToAny?: boolean;
  /** LoRA adapters by name; absent: none. */
  readonly adapters?: ServedAdapters;
  /** Jinja template in place of the demo model's. */
  readonly template?: string;
  /** Pooling of embeddings; by default the last token's. */
  readonly pooling?: Pooling;
  /** Folder of a tokenizer in place of the demo model's. */
  readonly textFolder?: string;
  /** Weights for scores, which are products with hidden states; absent: the model has no scores. */
  readonly scoreWeights?: Float32Array;
  /** True if the model has no vocabulary projection. */
  readonly isHeadless?: boolean;
  /** Tokens of cached nodes whose text an operator may see; absent: none. */
  readonly cachedTextTokens?: number;
  /** Recording that the server tells of; absent: none. */
  readonly recording?: string;
  /** Ledger of keys; absent: one in memory, without quotas. */
  readonly ledger?: UsageLedger;
  /** Absent: requests are not traced. */
  readonly traces?: Traces;
  /** Absent: a free one. */
  readonly port?: number;
}

export interface TestServer {
  /** Origin: http://127.0.0.1:port. */
  readonly origin: string;
  /** Answers requests, also those that another listener receives. */
  readonly fetch: (request: Request) => Response | Promise<Response>;
  readonly fleet: Fleet;
  readonly lifecycle: Lifecycle;
  readonly generator: Generator;
  readonly jobs: JobService | null;
  readonly programs: Programs;
  /** Resolves when the server is idle; throws if a page is still owned or a sequence is left. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

const realClock: Clock = {
  nowMs: () => performance.now(),
  after(delayMs, run) {
    const timer = setTimeout(run, delayMs);
    return () => clearTimeout(timer);
  },
};

const demoTokenizer = loadTokenizer(demoFolder);
const tokenizerWorker = new URL("../../server/text/worker.ts", import.meta.url).href;
const config = readModelConfig(demoFolder);
const source = readTemplateSource(demoFolder);

/** Makes the text functions with a template `jinja` and a tokenizer folder in place of the demo model's. */
function textWith(jinja: string | undefined, folder = demoFolder) {
  const tokenizer = folder === demoFolder ? demoTokenizer : loadTokenizer(folder);
  const used = jinja === undefined ? source : { template: jinja, toolTemplate: null, specialTokens: {} };
  const template = used === null ? null : new ChatTemplate(used, tokenizer.controlTexts);
  const text = { tokenizer, template };
  return { ...text, encoder: new Encoder(text, folder, tokenizerWorker) };
}

const demoText = textWith(undefined);

function scriptFor(answers: TestServerOptions["answers"], tokenizer: Tokenizer): Script | undefined {
  if (answers === undefined) return undefined;
  const says: Says = typeof answers === "function" ? answers : (_, seed) => answers.slice(seed, seed + 1);
  return scriptOf(tokenizer, config.eosTokens, says);
}

export function startTestServer(options: TestServerOptions = {}): TestServer {
  const { contextMax, vocab } = config.shape;
  const { template, textFolder } = options;
  const text = template === undefined && textFolder === undefined ? demoText : textWith(template, textFolder);
  const { tokenizer } = text;
  const spec: DeviceSpec = {
    name: "simulated",
    pages: 4096,
    pageTokens: 16,
    stepTokensMax: 1024,
    stepChunksMax: 256,
    contextMax,
    vocabSize: vocab,
    hidden: { size: 24, rowsMax: 1024 },
    ...options.spec,
  };
  const costs = linearCost(options.stepMs ?? 1, 0.01);
  const script = scriptFor(options.answers, tokenizer);
  const vocabulary = textVocabulary(tokenizer, spec.vocabSize);
  const devices = Array.from(
    { length: options.engines ?? 1 },
    () =>
      new ConstrainedDevice(new SimulatedDevice(spec, realClock, costs, options.fault, script), vocabulary),
  );
  const specs = devices.map(() => spec);
  const compiler = new ConstraintCompiler(
    new URL("../../server/grammar/worker.ts", import.meta.url).href,
    options.compileTimeoutMs,
  );
  const waiters: (() => void)[] = [];
  const onReport = (at: number, report: EngineReport): void => {
    telemetry.observeStep(at as EngineId, report.load);
    activity.note(at as EngineId, report);
    fleet.report(at as EngineId, report);
    if (fleet.active === 0) for (const wake of waiters.splice(0)) wake();
  };
  const settings: EngineSettings = {
    ...settingsOf(ours(options.tbtMs ?? null), devices.length),
    ...options.engine,
  };
  const engines = devices.map(
    (device, at) =>
      new Engine(device, realClock, settings, (report) => onReport(at, report), options.estimated),
  );
  const links = engines.map(
    (engine): EngineLink => ({
      send(message) {
        engine.receive(message);
        queueMicrotask(() => engine.run());
      },
    }),
  );
  if (options.link !== undefined) links[0] = options.link((report) => onReport(0, report));
  const placements = new PlacementLog();
  const activity = new ActivityLog(engines.length, options.tbtMs ?? null);
  const fleet = new Fleet(
    links.map((link) => ({ link, spec })),
    {
      clock: realClock,
      learns: true,
      publicTexts: (options.publicTexts ?? []).flatMap((one) => publicTokens(one, text)),
      onPlacement: (sequence, placement) => {
        placements.note(sequence, placement);
        telemetry.countPlacement(placement.engine, placement.reason);
      },
    },
  );
  const gap = new ThreadGap();
  const telemetry = new Telemetry({
    modelName: "demo",
    version: "0",
    specs,
    loads: () => fleet.loads(),
    predictionErrors: () => specs.map(() => 0.05),
    adapters:
      options.adapters === undefined ? null : { served: options.adapters, present: () => fleet.adapters() },
    gap: () => gap.worst,
    ledger: options.ledger ?? new UsageLedger(null),
    traces: options.traces ?? null,
    metricsKeptMs: 0, // tests read what has just been counted
  });
  const lifecycle = new Lifecycle();
  const { isHeadless = false, pooling = "last" } = options;
  const facts = { contextMax: spec.contextMax, eosTokens: config.eosTokens, isHeadless };
  const limits = { ...defaultHttpLimits, ...options.limits };
  const model = {
    names: ["demo", "also/demo"],
    answersToAny: options.answersToAny ?? false,
    ...(options.adapters === undefined ? {} : { adapters: options.adapters }),
    contextMax: spec.contextMax,
    vocabSize: spec.vocabSize,
    tokensOf: (text: string) => tokenizer.encode(text, { addSpecialTokens: false, continues: true }),
    fill: fillFormOf(tokenizer),
    generationDefaults: config.generationDefaults,
    embedding: { pooling, size: spec.hidden!.size },
    score:
      options.scoreWeights === undefined ? { refusal: "it is a test's" } : { weights: options.scoreWeights },
  };
  const { data, onWrite } = options;
  const responses = new KeptResponses(data ?? null, options.responseLimits);
  const json = new JsonReader(new URL("../../server/http/json/worker.ts", import.meta.url).href);
  const { app, generator, programs, jobs } = composeServer({
    ...text,
    about: { ...aboutOf(openModelFolder(demoFolder)), isHeadless },
    fleet,
    specs,
    facts,
    compile: (source) => compiler.compile(source),
    placements,
    activity,
    inspect: (nodesMax, owner) => {
      const textTokens = owner === null ? (options.cachedTextTokens ?? 0) : 0;
      for (const [at, engine] of engines.entries())
        activity.noteCache(at as EngineId, engine.snapshotCache({ nodesMax, textTokens, owner }), owner);
    },
    cacheSaltFor: cacheSalts({ sharePrefixes: options.sharePrefixes ?? false }),
    recording: options.recording ?? null,
    sessionPolicy: options.keepsSessions === false ? null : { kind: "priced" },
    speaksParrot: options.speaksParrot ?? false,
    reasoningField: options.reasoningField ?? "both",
    programModels:
      options.programFolder === undefined ? new Map() : readProgramModels(options.programFolder, model),
    programEngines: options.reportedEngines ?? 1,
    ...(options.programLimits === undefined ? {} : { programLimits: options.programLimits }),
    telemetry,
    lifecycle,
    model,
    version: "0.0.0-test",
    limits,
    responses,
    json,
    keys: new ApiKeys({ keys: [], file: null, ...options.keys }),
    origins: {
      loopbackOnly: options.loopbackOnly ?? true,
      hosts: options.allowedHosts ?? [],
      origins: options.corsOrigins ?? [],
    },
    jobs:
      data === undefined
        ? null
        : {
            store: openStore(data, onWrite),
            settings: {
              fileBytesMax: 2 ** 20,
              linesMax: 5000,
              unfinishedMax: options.unfinishedMax ?? 1000,
              storageBytesMax: options.storageBytesMax ?? 2 ** 30,
              retentionSeconds: 86_400,
            },
            retryMs: 20,
          },
  });
  const server = new HttpServer("127.0.0.1", options.port ?? 0, app.fetch);
  limitUnsent(server.port);

  const settled = async (): Promise<void> => {
    // The server may not have read the request of a client that left: the fleet's state is final once no
    // request is left.
    do {
      await lifecycle.whenIdle();
      while (fleet.active > 0) await new Promise<void>((resolve) => waiters.push(resolve));
    } while (lifecycle.active > 0);
    for (const engine of engines) engine.checkIntegrity();
    for (const load of fleet.loads()) {
      const owned = load.pagesTotal - load.pagesFree - load.pagesCached;
      const left = { owned, running: load.running, waiting: load.waiting, paused: load.paused };
      if (Object.values(left).some((count) => count !== 0) || generator.active !== 0) {
        throw new Error(`left behind: ${JSON.stringify({ ...left, generations: generator.active })}`);
      }
    }
  };
  return {
    origin: server.origin,
    fetch: app.fetch,
    fleet,
    lifecycle,
    generator,
    jobs,
    programs,
    settled,
    close: async () => {
      await jobs?.runner.stop();
      jobs?.store.close();
      responses.close();
      compiler.close();
      json.close();
      gap.close();
      await server.kill();
      generator.close();
      for (const device of devices) device.close();
    },
  };
}

/** Posts a request's JSON body. */
export function post(
  server: TestServer,
  path: string,
  body: unknown,
  init: RequestInit = {},
): Promise<Response> {
  return fetch(server.origin + path, {
    method: "POST",
    body: typeof body === "string" || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    ...init,
    headers: { "content-type": "application/json", ...(init.headers as Record<string, string>) },
  });
}

/** Makes a chat body of one user message, with extra fields. */
export function chatBody(content: string, more: Readonly<Record<string, unknown>> = {}): object {
  return { model: "demo", messages: [{ role: "user", content }], ...more };
}

/** Fields of answer bodies that tests read; a missing one is undefined in an assertion. */
export interface Wire {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly WireChoice[];
  readonly usage: {
    readonly prompt_tokens: number;
    readonly completion_tokens: number;
    readonly total_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly prompt_token_ids: readonly number[];
  readonly data: readonly { readonly id: string; readonly max_model_len: number }[];
  readonly count: number;
  /** Tokens in llama-server's shape; with pieces, they are objects with these fields. */
  readonly tokens: readonly (number & { readonly id: number })[];
  readonly token_strs: readonly string[];
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string;
    readonly code: string;
  };
}

export interface WireChoice {
  readonly index: number;
  readonly message: {
    readonly role: string;
    readonly content: string;
    readonly tool_calls?: readonly WireToolCall[];
  };
  readonly delta: {
    readonly role?: string;
    readonly content?: string;
    readonly tool_calls?: readonly WireToolCall[];
  };
  readonly text: string;
  readonly finish_reason: string | null;
  readonly stop_reason: string | number | null;
  readonly token_ids: readonly number[];
  readonly prompt_token_ids: readonly number[];
  readonly logprobs: {
    readonly content: readonly WireLogprob[];
    readonly refusal: null;
    readonly tokens: readonly string[];
    readonly text_offset: readonly number[];
  };
}

export interface WireToolCall {
  /** Index, in streams only; there, id, type and name come once. */
  readonly index: number;
  readonly id?: string;
  readonly type?: string;
  readonly function: { readonly name?: string; readonly arguments: string };
}

export interface WireLogprob {
  readonly token: string;
  readonly logprob: number;
  readonly bytes: readonly number[];
  readonly top_logprobs: readonly WireLogprob[];
}

export async function bodyOf(response: Response): Promise<Wire> {
  return (await response.json()) as Wire;
}

export function chunksOf(events: readonly string[]): Wire[] {
  return events.filter((event) => event !== "[DONE]").map((event) => JSON.parse(event) as Wire);
}

export interface StreamText {
  /** Payloads of the `data: ` lines, in order. */
  readonly events: readonly string[];
  readonly comments: number;
}

/** Reads a stream of server-sent events to its end. */
export async function readEvents(response: Response): Promise<StreamText> {
  const frames = (await response.text()).split("\n\n");
  if (frames.pop() !== "") throw new Error("the stream ends within a frame");
  const events = frames.filter((frame) => frame.startsWith("data: ")).map((frame) => frame.slice(6));
  const comments = frames.filter((frame) => frame.startsWith(":")).length;
  if (events.length + comments !== frames.length) throw new Error("a frame is neither data nor comment");
  return { events, comments };
}

/** Concatenates the content of choice `index` in a chat stream's events. */
export function contentOf(events: readonly string[], index = 0): string {
  return chunksOf(events)
    .flatMap((chunk) => chunk.choices)
    .filter((choice) => choice.index === index)
    .map((choice) => choice.delta.content ?? "")
    .join("");
}

/** Composition of the server: configuration → plan → engines → text → HTTP. */

import { readFileSync } from "node:fs";
import { PAGE_TOKENS } from "../gpu/native/open.ts";
import { openLibrary } from "../gpu/native.ts";
import { openModelFolder } from "../model/folder.ts";
import { ioReason } from "../model/model-error.ts";
import type { ModelFolder } from "../model/model-folder.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import { ours } from "../scheduler/policies.ts";
import { type ModelText, openFill, openTemplate, openTokenizer } from "../text/model-text.ts";
import { publicTokens } from "../text/public-texts.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { textVocabulary } from "../text/vocabulary.ts";
import { cacheSalts } from "./api/cache-salt.ts";
import { type ProgramModel, readProgramModels } from "./api/programs/files.ts";
import { refusalOn } from "./api/refusals.ts";
import { KeptResponses } from "./api/responses/kept.ts";
import { demoModelFolder } from "./assets.ts";
import { type ComposedServer, composeServer } from "./compose.ts";
import { type Config, ConfigError, isLoopback } from "./config.ts";
import { chooseBackend, type NativeChoice } from "./engines/backend.ts";
import { chooseContext, modelNames, planProblem, planServing, type ServingPlan } from "./engines/plan.ts";
import type { DeviceSetup, LoadProgress, StartTimes } from "./engines/protocol.ts";
import {
  type EnginesConfig,
  type EnginesEvents,
  type RunningEngines,
  startEngines,
} from "./engines/start.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
import { ApiKeys, KeyFileError } from "./http/auth.ts";
import { ThreadGap } from "./http/gap.ts";
import { JsonReader } from "./http/json/reader.ts";
import { Lifecycle } from "./http/lifecycle.ts";
import { defaultHttpLimits } from "./http/limits.ts";
import { listen } from "./http/listen.ts";
import type { OriginRules } from "./http/origin.ts";
import { RequestLog } from "./http/request-log.ts";
import { PlacementLog } from "./http/state.ts";
import { Telemetry } from "./http/telemetry.ts";
import { openJobs } from "./jobs/data-folder.ts";
import type { JobSettings } from "./jobs/service.ts";
import type { JobStore } from "./jobs/store.ts";
import { aboutOf, embeddingServed, type ServedModel } from "./request/served-model.ts";
import { Encoder } from "./text/encoder.ts";
import { version } from "./version.ts";

export interface StartEvents extends Pick<EnginesEvents, "onLost" | "onReplaced"> {
  /** Called before any allocation. Not called for a simulated device, which allocates next to nothing. */
  onPlan(plan: ServingPlan): void;
  onProgress(progress: LoadProgress): void;
}

export interface RunningServer {
  /** Base URL without a path: "http://127.0.0.1:8000". */
  readonly url: string;
  /** The model's name in answers. */
  readonly model: string;
  /** Parts of the first engine's start. */
  readonly startTimes: StartTimes;
  /** Message about packed weights on disk; null for none. */
  readonly packedNote: string | null;
  /** Folder of the batch jobs, or the reason why there is none; null for no message. */
  readonly jobsNote: string | null;
  /** Requests in flight. */
  readonly active: number;
  /** Resolves with the reason when the last engine is lost for good: the server must then be restarted. */
  readonly lost: Promise<string>;
  /** Reloads the API key file; running requests continue. Returns a sentence about the result. */
  reloadKeys(): string;
  /**
   * Refuses new work and lets running requests finish for at most `timeoutMs`. Then cuts the rest and stops
   * everything. Resolves to the number of cut requests.
   */
  drain(timeoutMs: number): Promise<number>;
}

/** Everything needed to start engines, shared with the rest of the server. */
interface Prepared {
  readonly names: readonly string[];
  readonly folder: ModelFolder;
  readonly contextMax: number;
  readonly engines: number;
  readonly device: DeviceSetup;
}

/**
 * Loads the model in `dir` (null: the one that comes with Bunting) and serves it. Errors that a person can
 * mend have a sentence for people as their message.
 */
export async function startServer(
  config: Config,
  dir: string | null,
  events: StartEvents,
): Promise<RunningServer> {
  const keys = openKeys(config);
  const modelDir = dir ?? (await demoModelFolder());
  const prepared =
    config.device.kind === "simulated"
      ? prepareSimulated(config, modelDir, config.device.engines)
      : await prepareNative(config, modelDir, config.device, events);
  const text = openText(prepared.folder.dir);
  const model = servedModelOf(config, prepared, text.tokenizer);
  const programModels = config.programs === null ? new Map() : readProgramModels(config.programs, model);
  const { store, note: jobsNote } = openJobs(config, prepared.names[0]!);
  const responses = new KeptResponses(typeof config.data === "object" ? config.data.folder : null);

  const lifecycle = new Lifecycle("loading");
  const server = listen(config, lifecycle, refusalOn);
  const lost = Promise.withResolvers<string>();
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const vocabulary = textVocabulary(text.tokenizer, prepared.folder.config.shape.vocab);
  const publicTexts = config.publicPrefix.flatMap((file) => publicTokens(readText(file), text));
  const facts = { vocabulary, publicTexts };
  const watched = await startWatchedEngines(config, prepared, facts, events, (reason) => {
    lifecycle.becomeLost(reason);
    lost.resolve(reason);
  }).catch(async (error: Error) => {
    await server.kill();
    store?.close();
    responses.close();
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(`The model cannot be loaded: ${error.message}`);
  });
  const json = new JsonReader(new URL("./http/json/worker.ts", import.meta.url).href);
  const deps = { ...text, ...watched, json, compiler, model, programModels, lifecycle, keys, responses };
  const { app, jobs } = compose(config, prepared, deps, store);
  server.serve = app.fetch;
  lifecycle.becomeReady();

  return {
    url: server.origin,
    model: prepared.names[0]!,
    startTimes: watched.engines.startTimes,
    packedNote: watched.engines.packedNote,
    jobsNote,
    get active() {
      return lifecycle.active;
    },
    lost: lost.promise,
    reloadKeys: () => keys.reload(),
    async drain(timeoutMs) {
      const startedMs = performance.now();
      const drained = lifecycle.drain(timeoutMs);
      await jobs?.runner.stop(); // running lines start again after the next start
      const cut = await drained;
      // Answers are complete; their sockets may send buffered data for the rest of the time.
      await Promise.race([
        server.stop(),
        Bun.sleep(Math.max(100, timeoutMs - (performance.now() - startedMs))),
      ]);
      await server.kill();
      jobs?.store.close();
      responses.close();
      text.encoder.close();
      compiler.close();
      json.close();
      watched.gap.close();
      await watched.engines.close();
      return cut;
    },
  };
}

/** Services that turn text into tokens and back. */
interface TextServices extends ModelText {
  readonly encoder: Encoder;
}

function openText(modelDir: string): TextServices {
  const tokenizer = openTokenizer(modelDir);
  const text = { tokenizer, template: openTemplate(modelDir, tokenizer) };
  const encoder = new Encoder(text, modelDir, new URL("./text/worker.ts", import.meta.url).href);
  encoder.probe();
  return { ...text, encoder };
}

/** Engines with their telemetry. */
interface WatchedEngines {
  readonly gap: ThreadGap;
  readonly engines: RunningEngines;
  readonly telemetry: Telemetry;
  readonly placements: PlacementLog;
}

async function startWatchedEngines(
  config: Config,
  { names, engines: count, device }: Prepared,
  { vocabulary, publicTexts }: Required<Pick<EnginesConfig, "vocabulary" | "publicTexts">>,
  events: StartEvents,
  onAllLost: (reason: string) => void,
): Promise<WatchedEngines> {
  const watched = Promise.withResolvers<WatchedEngines>();
  const workerUrl = new URL("./engines/worker.ts", import.meta.url).href;
  const policy = ours(config.tbtMs > 0 ? config.tbtMs : null);
  const options = { queueMax: config.queueMax };
  const { record } = config;
  await startEngines(
    { workerUrl, engines: count, device, policy, options, publicTexts, record, vocabulary },
    events.onProgress,
    (engines) => {
      const { fleet, specs } = engines;
      const loads = () => fleet.loads();
      const predictionErrors = () => fleet.estimated.map(({ margin }) => margin ?? 0);
      const gap = new ThreadGap();
      const telemetry = new Telemetry({
        modelName: names[0]!,
        version,
        specs,
        log: config.logRequests ? new RequestLog(console.log) : null,
        loads,
        predictionErrors,
        gap: () => gap.worst,
      });
      const placements = new PlacementLog();
      watched.resolve({ engines, telemetry, placements, gap });
      return {
        onReport: (engine, { load }) => telemetry.observeStep(engine, load),
        onPlacement: (sequence, placement) => {
          placements.note(sequence, placement);
          telemetry.countPlacement(placement.engine, placement.reason);
        },
        onLost: (engine, reason, isComing) => events.onLost?.(engine, reason, isComing),
        onReplaced: (engine) => {
          telemetry.countRestart(engine);
          events.onReplaced?.(engine);
        },
        onAllLost,
      };
    },
  );
  return await watched.promise;
}

/** Services that the composition gets besides the configuration. */
interface AppServices extends TextServices, WatchedEngines {
  readonly json: JsonReader;
  readonly compiler: ConstraintCompiler;
  readonly lifecycle: Lifecycle;
  readonly keys: ApiKeys;
  readonly model: ServedModel;
  readonly programModels: ReadonlyMap<string, ProgramModel>;
  readonly responses: KeptResponses;
}

function compose(
  config: Config,
  { folder, contextMax, device }: Prepared,
  services: AppServices,
  store: JobStore | null,
): ComposedServer {
  const { engines, compiler } = services;
  const { fleet, specs } = engines;
  return composeServer({
    ...services,
    fleet,
    specs,
    facts: { contextMax, eosTokens: folder.eosTokens, isHeadless: folder.config.isHeadless ?? false },
    compile: (source) => compiler.compile(source, device.kind === "cpu" && fleet.active > 0),
    about: aboutOf(folder),
    cacheSaltFor: cacheSalts(config),
    speaksParrot: config.parrotApi,
    reasoningField: config.reasoningField,
    version,
    limits: defaultHttpLimits,
    origins: originRules(config),
    jobs: store === null ? null : { store, settings: jobSettings(config) },
  });
}

function servedModelOf(
  { anyModelName }: Config,
  { names, contextMax, folder }: Prepared,
  tokenizer: Tokenizer,
): ServedModel {
  const { config, generationDefaults } = folder;
  const vocabSize = config.shape.vocab;
  const embedding = embeddingServed(folder);
  const fill = openFill(folder.dir, tokenizer);
  const tokensOf = (text: string) => tokenizer.encode(text, { addSpecialTokens: false, continues: true });
  return {
    names,
    answersToAny: anyModelName,
    contextMax,
    vocabSize,
    tokensOf,
    fill,
    generationDefaults,
    embedding,
    score: folder.score,
  };
}

function jobSettings({ batchLinesMax, batchFileMib, batchResultDays }: Config): JobSettings {
  return {
    fileBytesMax: batchFileMib * 2 ** 20,
    linesMax: batchLinesMax,
    retentionSeconds: batchResultDays * 86_400,
  };
}

function originRules({ host, allowHost, corsOrigin }: Config): OriginRules {
  return { loopbackOnly: isLoopback(host), hosts: allowHost, origins: corsOrigin };
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (error) {
    throw new ConfigError(`--public-prefix ${file} ${ioReason(error)}.`);
  }
}

function openKeys(config: Config): ApiKeys {
  try {
    const { apiKey: keys, apiKeyFile: file, adminKey: adminKeys, adminKeyFile: adminFile } = config;
    return new ApiKeys({ keys, file, adminKeys, adminFile });
  } catch (error) {
    if (!(error instanceof KeyFileError)) throw error;
    const { file, cause } = error;
    const reason = cause instanceof Error && !("code" in cause) ? cause.message : ioReason(cause);
    throw new ConfigError(`No API key can be taken from ${file}: ${reason}.`);
  }
}

async function prepareNative(
  config: Config,
  dir: string,
  choice: NativeChoice,
  events: StartEvents,
): Promise<Prepared> {
  const backend = await chooseBackend(choice);
  const { library, gpus } = backend;
  const plan = planServing(config, backend, openLibrary(library), dir);
  events.onPlan(plan);
  const problem = planProblem(plan.memory);
  if (problem !== null) throw new ConfigError(problem);
  const { names, folder, contextMax, compute, packedFolders, costsFolders, limits } = plan;
  const native = {
    library,
    folder: plan.folder.dir,
    model: { ...compute, contextMax, packedFolders, costsFolders },
    limits,
  };
  const device: DeviceSetup =
    gpus === null
      ? { kind: "cpu", ...native }
      : {
          kind: "gpu",
          ...native,
          gpus,
          gpuNames: plan.gpus.map(({ name }) => name),
          isEmulated: backend.kind === "emu",
        };
  return { names, folder, contextMax, engines: backend.engines, device };
}

const SIMULATED_CONTEXTS = 64;
const SIMULATED_TOKENS_MAX = 2 ** 20;

function prepareSimulated(config: Config, dir: string, engines: number): Prepared {
  const folder = openModelFolder(dir);
  const contextMax = chooseContext(config, folder);
  const tokens = Math.max(contextMax, Math.min(contextMax * SIMULATED_CONTEXTS, SIMULATED_TOKENS_MAX));
  const spec: DeviceSpec = {
    name: "simulated",
    pages: Math.ceil(tokens / PAGE_TOKENS),
    pageTokens: PAGE_TOKENS,
    stepTokensMax: config.stepTokens,
    stepChunksMax: config.sequencesMax > 0 ? config.sequencesMax : config.stepTokens,
    contextMax,
    vocabSize: folder.config.shape.vocab,
    hidden: { size: folder.config.shape.hidden, rowsMax: config.stepTokens },
  };
  return {
    names: modelNames(config, folder),
    folder,
    contextMax,
    engines,
    device: { kind: "simulated", spec },
  };
}

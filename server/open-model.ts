/** Parts of one model: its plan, text services, engines, and telemetry. */

import { readFileSync } from "node:fs";
import type { TokenId } from "../base/token.ts";
import { PAGE_TOKENS } from "../gpu/native/open.ts";
import { openLibrary } from "../gpu/native.ts";
import { turnEndTexts } from "../model/ends.ts";
import { openModelFolder } from "../model/folder.ts";
import { ioReason } from "../model/model-error.ts";
import type { ModelFolder } from "../model/model-folder.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import { ours } from "../scheduler/policies.ts";
import type { FillForm } from "../text/fill.ts";
import {
  type ModelText,
  openFill,
  openTemplate,
  openTextHead,
  openTokenizer,
  publicTokens,
  textVocabulary,
} from "../text/model-text.ts";
import type { ChatTemplate } from "../text/template.ts";
import { TemplateError } from "../text/template-error.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { type Adapters, distinctAdapters, openAdapters } from "./adapters.ts";
import { type Config, ConfigError } from "./config.ts";
import { type Backend, chooseBackend } from "./engines/backend.ts";
import { expectDraftChoice } from "./engines/draft-plan.ts";
import {
  chooseContext,
  type MemoryShare,
  modelNames,
  planProblem,
  planServing,
  type ServingPlan,
  stepTokensFor,
} from "./engines/plan.ts";
import type { DeviceSetup } from "./engines/protocol.ts";
import { type RunningEngines, startEngines, type TextFacts } from "./engines/start.ts";
import { ActivityLog } from "./http/activity.ts";
import type { ThreadGap } from "./http/gap.ts";
import { RequestLog } from "./http/request-log.ts";
import { PlacementLog } from "./http/state.ts";
import type { StateSources } from "./http/state-stream.ts";
import { Telemetry, type TelemetryOptions } from "./http/telemetry.ts";
import { embeddingServed, type ServedModel } from "./request/served-model.ts";
import type { EngineEvents } from "./running-server.ts";
import { Encoder } from "./text/encoder.ts";
import type { Traces } from "./trace/traces.ts";
import type { UsageLedger } from "./usage/ledger.ts";
import { version } from "./version.ts";

/** Everything needed to start engines, shared with the rest of the server. */
export interface Prepared {
  readonly names: readonly string[];
  readonly folder: ModelFolder;
  readonly adapters: Adapters;
  readonly contextMax: number;
  readonly engines: number;
  readonly device: DeviceSetup;
}

/** Services that turn text into tokens and back. */
export interface TextServices extends ModelText {
  readonly encoder: Encoder;
  /** FIM tokens; null if the model has none. */
  readonly fill: FillForm | null;
}

/** Opens the text services of a model. Throws ConfigError for a chat template or arguments that do not work. */
export function openText(modelDir: string, config: Config): TextServices {
  const head = openTextHead(modelDir); // read once: vocabularies are large
  const tokenizer = openTokenizer(modelDir, head);
  const text = { tokenizer, template: templateFor(modelDir, tokenizer, config, head) };
  const encoder = new Encoder(text, modelDir, new URL("./text/worker.ts", import.meta.url).href);
  encoder.probe();
  return { ...text, encoder, fill: openFill(head, tokenizer) };
}

function templateFor(
  modelDir: string,
  tokenizer: Tokenizer,
  { chatTemplate, chatTemplateKwargs }: Config,
  head: ReturnType<typeof openTextHead>,
): ChatTemplate | null {
  const choice = { template: chatTemplate, argumentsText: chatTemplateKwargs };
  try {
    return openTemplate(modelDir, tokenizer, choice, head);
  } catch (error) {
    if (!(error instanceof TemplateError) || (chatTemplate ?? chatTemplateKwargs) === null) throw error;
    const option = chatTemplate === null ? "--chat-template-kwargs" : "--chat-template";
    throw new ConfigError(`${option}: ${error.message}.`);
  }
}

/** Facts that the engines need about text: the bytes of each token, and the tokens of public prefixes. */
export function factsFor(config: Config, { folder }: Prepared, text: ModelText): TextFacts {
  const vocabulary = textVocabulary(text.tokenizer, folder.config.shape.vocab);
  const publicTexts = config.publicPrefix.flatMap((file) => publicTokens(readText(file), text));
  return { vocabulary, publicTexts };
}

/**
 * End tokens of an answer: those of the model's configuration, the tokenizer's own, and control tokens that are
 * known to end a turn.
 */
export function endTokensOf({ config, eosTokens }: ModelFolder, tokenizer: Tokenizer): readonly TokenId[] {
  const known = turnEndTexts(tokenizer.controlTexts.texts).map((text) => tokenizer.tokenOf(text));
  const own = [tokenizer.endToken, ...known].filter((token) => token !== null && token < config.shape.vocab);
  return [...new Set([...eosTokens, ...(own as TokenId[])])];
}

/** Draft sources of the scheduler by `--speculate`. "head": the device drafts, with its MTP head or draft model. */
const draftKinds = { auto: "both", off: "off", suffix: "suffix", mtp: "head", draft: "head" } as const;

/** Tokens at the start of a prefix-cache node whose text an operator may read. */
const TEXT_TOKENS = 64;

/** Engines with their telemetry. */
export interface WatchedEngines {
  readonly engines: RunningEngines;
  readonly telemetry: Telemetry;
  readonly placements: PlacementLog;
  readonly activity: ActivityLog;
  /** Asks the engines for snapshots of their prefix caches, with texts if the settings allow and no owner is named. */
  readonly inspect: StateSources["inspect"];
}

/**
 * Starts the engines. They begin to load before the first `await`. `telemetryFor` is called once, when all are
 * ready.
 */
export async function startWatchedEngines(
  config: Config,
  { engines: count, device }: Prepared,
  facts: Promise<TextFacts>,
  events: EngineEvents,
  telemetryFor: (engines: RunningEngines) => Telemetry,
  onAllLost: (reason: string) => void,
): Promise<WatchedEngines> {
  const watched = Promise.withResolvers<WatchedEngines>();
  const workerUrl = new URL("./engines/worker.ts", import.meta.url).href;
  const policy = ours(config.tbtMs > 0 ? config.tbtMs : null, draftKinds[config.speculate]);
  const options = { queueMax: config.queueMax };
  const { record } = config;
  await startEngines(
    { workerUrl, engines: count, device, policy, options, record, facts },
    events.onProgress,
    (engines) => {
      const telemetry = telemetryFor(engines);
      const placements = new PlacementLog();
      const activity = new ActivityLog(engines.specs.length, config.tbtMs > 0 ? config.tbtMs : null);
      const textTokens = config.showCachedText ? TEXT_TOKENS : 0;
      const inspect: StateSources["inspect"] = (nodesMax, owner) =>
        engines.inspect({ nodesMax, textTokens: owner === null ? textTokens : 0, owner });
      watched.resolve({ engines, telemetry, placements, activity, inspect });
      return {
        onReport: (engine, report) => {
          telemetry.observeStep(engine, report.load);
          activity.note(engine, report);
        },
        onCache: (engine, snapshot, owner) => activity.noteCache(engine, snapshot, owner),
        onDisk: (engine, counts) => telemetry.countDisk(engine, counts),
        onHost: (engine, counts) => telemetry.countHost(engine, counts),
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

/** Services of a server that its telemetry reads. */
export interface WatchServices {
  readonly gap: ThreadGap;
  readonly ledger: UsageLedger;
  readonly traces: Traces | null;
}

const noAdapters = { running: new Set<number>(), waiting: new Set<number>() };

/** Telemetry of engines. `engines` returns the present ones; null while their model is not loaded. */
export function openTelemetry(
  { logRequests }: Config,
  modelName: string,
  adapters: Adapters,
  scope: NonNullable<TelemetryOptions["scope"]>,
  specs: readonly DeviceSpec[],
  engines: () => RunningEngines | null,
  { gap, ledger, traces }: WatchServices,
): Telemetry {
  return new Telemetry({
    modelName,
    version,
    scope,
    specs,
    ledger,
    traces,
    log: logRequests ? new RequestLog(console.log) : null,
    loads: () => engines()?.fleet.loads() ?? [],
    adapters:
      adapters.size === 0
        ? null
        : { served: adapters, present: () => engines()?.fleet.adapters() ?? noAdapters },
    predictionErrors: () => engines()?.fleet.estimated.map(({ margin }) => margin ?? 0) ?? [],
    gap: () => gap.worst,
  });
}

export function servedModelOf(
  { anyModelName }: Config,
  { names, adapters, contextMax, folder }: Prepared,
  { tokenizer, fill }: Pick<TextServices, "tokenizer" | "fill">,
): ServedModel {
  const { config, generationDefaults } = folder;
  const vocabSize = config.shape.vocab;
  const embedding = embeddingServed(folder);
  const tokensOf = (text: string) => tokenizer.encode(text, { addSpecialTokens: false, continues: true });
  return {
    names,
    answersToAny: anyModelName,
    ...(adapters.size === 0 ? {} : { adapters }),
    contextMax,
    vocabSize,
    tokensOf,
    fill,
    generationDefaults,
    ...(config.shape.encoder === undefined ? {} : { isEncoder: true }),
    ...(config.isHeadless ? { isHeadless: true } : {}),
    embedding,
    score: folder.score,
  };
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8").replace(/\r?\n$/, "");
  } catch (error) {
    throw new ConfigError(`--public-prefix ${file} ${ioReason(error)}.`);
  }
}

/** Plans the only model of a server. Allocates nothing. `onPlan` is not called for a simulated device. */
export async function prepare(
  config: Config,
  dir: string,
  onPlan: (plan: ServingPlan) => void,
): Promise<Prepared> {
  if (config.device.kind === "simulated") return prepareSimulated(config, dir, config.device.engines);
  return prepareNative(config, dir, await chooseBackend(config.device), onPlan);
}

/** Plans a model. `shares`: memory to plan with, the first that the model fits in; absent: all that is free. */
export function prepareNative(
  config: Config,
  dir: string,
  backend: Backend,
  onPlan: (plan: ServingPlan) => void,
  shares: readonly MemoryShare[] = [{ limitBytes: Number.POSITIVE_INFINITY, isLean: false }],
): Prepared {
  const { library, gpus } = backend;
  const loaded = openLibrary(library);
  const plans = shares.map((share) => () => planServing(config, backend, loaded, dir, share));
  let plan = plans[0]!();
  for (const other of plans.slice(1)) if (plan.memory.kind !== "fits") plan = other();
  onPlan(plan);
  const problem = planProblem(plan.memory);
  if (problem !== null) throw new ConfigError(problem);
  const { names, folder, adapters, contextMax, compute, draft, packedFolders, costsFolders, limits } = plan;
  const native = {
    library,
    folder: plan.folder.dir,
    ropeScaling: config.ropeScaling,
    model: { ...compute, contextMax, packedFolders, costsFolders, adapters: distinctAdapters(adapters) },
    draft:
      draft === null
        ? null
        : {
            folder: draft.folder.dir,
            model: { ...draft.compute, contextMax, packedFolders: draft.packedFolders },
          },
    limits,
    disk:
      plan.disk.setup === null
        ? null
        : { ...plan.disk.setup, workerUrl: new URL("./kv-disk/worker.ts", import.meta.url).href },
    host:
      plan.host.setup === null
        ? null
        : { ...plan.host.setup, workerUrl: new URL("./kv-host/worker.ts", import.meta.url).href },
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
  return { names, folder, adapters, contextMax, engines: backend.engines, device };
}

const SIMULATED_CONTEXTS = 64;
const SIMULATED_TOKENS_MAX = 2 ** 20;

export function prepareSimulated(config: Config, dir: string, engines: number): Prepared {
  if (config.speculate === "mtp")
    throw new ConfigError("--speculate mtp: the simulated device has no model, and so no head that drafts.");
  expectDraftChoice(config);
  if (config.draftModel !== null)
    throw new ConfigError(
      `--draft-model ${config.draftModel}: the simulated device computes no model, and so none that drafts.`,
    );
  if (config.kvHost > 0)
    throw new ConfigError(`--kv-host ${config.kvHost}: the simulated device has no pages to keep.`);
  const folder = openModelFolder(dir, config.ropeScaling);
  const contextMax = chooseContext(config, folder);
  const stepTokensMax = stepTokensFor(config, folder, contextMax);
  const tokens = Math.max(contextMax, Math.min(contextMax * SIMULATED_CONTEXTS, SIMULATED_TOKENS_MAX));
  const spec: DeviceSpec = {
    name: "simulated",
    pages: Math.ceil(tokens / PAGE_TOKENS),
    pageTokens: PAGE_TOKENS,
    stepTokensMax,
    stepChunksMax: config.sequencesMax > 0 ? config.sequencesMax : config.stepTokens,
    contextMax,
    vocabSize: folder.config.shape.vocab,
    hidden: { size: folder.config.shape.hidden, rowsMax: stepTokensMax },
  };
  const names = modelNames(config, folder);
  return {
    names,
    folder,
    adapters: openAdapters(config.lora, folder, names, false),
    contextMax,
    engines,
    device: { kind: "simulated", spec },
  };
}

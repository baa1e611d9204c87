/** Composition of a server with several models, which are loaded when requests name them. */

import { formatBytes, plannedBytes, reserveOf } from "../gpu/memory.ts";
import { openLibrary } from "../gpu/native.ts";
import { openModelFolder } from "../model/folder.ts";
import { SessionTable } from "../scheduler/session/session-table.ts";
import { CacheRecords } from "./api/cache-records.ts";
import { batchRoom, lineServices, runJobs } from "./api/jobs.ts";
import { type LineServices, lineDoor } from "./api/openai/batch-line.ts";
import { refusalOn } from "./api/refusals.ts";
import type { KeptResponses } from "./api/responses/kept.ts";
import { routesOf, stateLists } from "./api/routes.ts";
import { type ModelHost, resolvedName, severalRoutes } from "./api/several.ts";
import type { ListedModel } from "./api/several-models.ts";
import { composeModel } from "./compose.ts";
import { type Config, ConfigError } from "./config.ts";
import { chooseBackend } from "./engines/backend.ts";
import type { RunningEngines } from "./engines/start.ts";
import { RequestRecords } from "./explain/request-records.ts";
import { Front } from "./front.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
import { findPredecessor } from "./hand-over/predecessor.ts";
import { createApp } from "./http/app.ts";
import { cacheSalts } from "./http/auth.ts";
import { BodyReader } from "./http/body.ts";
import { ThreadGap } from "./http/gap.ts";
import { JsonReader } from "./http/json/reader.ts";
import { KeptStreams } from "./http/kept-streams.ts";
import { Lifecycle } from "./http/lifecycle.ts";
import { defaultHttpLimits } from "./http/limits.ts";
import { mergedMetrics } from "./http/merged-metrics.ts";
import { Scrape } from "./http/scrape.ts";
import { factsOf, snapshotOf } from "./http/state.ts";
import { StateStreams } from "./http/state-stream.ts";
import type { Telemetry } from "./http/telemetry.ts";
import type { LineDoor } from "./jobs/door.ts";
import { modelNotes } from "./model-notes.ts";
import { ModelLifecycle } from "./models/model-lifecycle.ts";
import { type ModelRow, ModelSet } from "./models/model-set.ts";
import type { ModelSetting } from "./models/model-settings.ts";
import {
  endTokensOf,
  factsFor,
  openTelemetry,
  openText,
  type Prepared,
  prepareNative,
  prepareSimulated,
  servedModelOf,
  startWatchedEngines,
} from "./open-model.ts";
import { aboutOf } from "./request/served-model.ts";
import type { EngineEvents, RunningServer, StartEvents } from "./running-server.ts";
import { jobSettings, openKeys, openLedger, originRules, sessionPolicyOf } from "./server-parts.ts";
import type { UsageLedger } from "./usage/ledger.ts";
import { version } from "./version.ts";

/** A loaded model with the services that its server needs of it. */
interface Host extends ModelHost {
  readonly engines: RunningEngines;
  readonly placements: Parts["placements"];
  readonly activity: Parts["activity"];
  readonly lineServices: LineServices["services"];
}

type Parts = Awaited<ReturnType<typeof startWatchedEngines>>;

/** Everything about a model that stays while its engines come and go. */
interface OpenModel {
  readonly setting: ModelSetting;
  readonly prepared: Prepared;
  readonly bytes: number;
  readonly text: ReturnType<typeof openText>;
  /** Made once: making them for each load would delay the streams of other models. */
  readonly facts: ReturnType<typeof factsFor>;
  readonly listed: ListedModel;
  readonly sessions: SessionTable;
  /** Present engines; null while it is not loaded. */
  engines: RunningEngines | null;
  /** null before the first load. */
  telemetry: Telemetry | null;
}

/** Services that all models share. */
interface Shared {
  readonly config: Config;
  readonly lifecycle: Lifecycle;
  readonly compiler: ConstraintCompiler;
  readonly responses: KeptResponses;
  readonly streams: KeptStreams;
  readonly cacheRecords: CacheRecords;
  readonly requestRecords: RequestRecords;
  readonly ledger: UsageLedger;
  readonly gap: ThreadGap;
  readonly events: EngineEvents;
}

/** Name of the default folder of jobs. */
const JOBS_NAME = "several models";
/** Wait for a model after which a stream begins, to tell of progress. */
const BEGINS_MS = 1000;

/** Serves all models of `settings`. Errors that a person can mend have a sentence for people as their message. */
export async function startSeveral(
  config: Config,
  settings: readonly ModelSetting[],
  events: StartEvents,
): Promise<RunningServer> {
  const keys = openKeys(config);
  const predecessor = config.takeOver ? await findPredecessor(config) : null;
  const memoryBytes = config.memory > 0 ? config.memory : await freeBytes(config);
  const models: OpenModel[] = [];
  for (const setting of settings) {
    const path = (await events.modelPath?.(setting.path, setting.config)) ?? setting.path;
    models.push(await openModel({ ...setting, path }, memoryBytes, settings.length));
  }
  expectFit(models, memoryBytes);
  events.onModels?.(
    models.map(({ setting, prepared, bytes, listed }) => ({
      name: setting.name,
      family: listed.about.family,
      contextMax: prepared.contextMax,
      bytes,
      isPinned: setting.isPinned,
    })),
    memoryBytes,
  );
  const notes = [
    ...models.flatMap(({ setting, prepared, text }) =>
      modelNotes(prepared.folder, text.template).map((note) => `the model ${setting.name}: ${note}`),
    ),
  ];
  const lifecycle = new Lifecycle("loading");
  const front =
    predecessor === null
      ? Front.open(config, JOBS_NAME, lifecycle)
      : await Front.takeOver(config, JOBS_NAME, lifecycle, predecessor);
  const { responses, store, server } = front;
  if (front.jobsNote !== null) notes.push(front.jobsNote);
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const json = new JsonReader(new URL("./http/json/worker.ts", import.meta.url).href);
  const gap = new ThreadGap();
  const cacheRecords = new CacheRecords();
  const requestRecords = new RequestRecords();
  const streams = new KeptStreams(defaultHttpLimits);
  const ledger = openLedger(config);
  const shared = {
    config,
    lifecycle,
    compiler,
    responses,
    streams,
    cacheRecords,
    requestRecords,
    ledger,
    gap,
    events,
  };
  const set = new ModelSet<Host>(
    models.map((model) => rowOf(model, shared)),
    { memoryBytes, waitMs: config.modelWaitS * 1000, waitingMax: config.queueMax },
  );
  const close = async (): Promise<void> => {
    await set.close();
    for (const { text } of models) text.encoder.close();
    compiler.close();
    json.close();
    gap.close();
    ledger.close();
  };
  const loadPinned = async (): Promise<void> => {
    for (const { setting } of models.filter((model) => model.setting.isPinned))
      (await set.use(setting.name)).end();
  };
  try {
    if (predecessor === null) await loadPinned();
  } catch (error) {
    await front.close();
    await close();
    throw new ConfigError((error as Error).message);
  }

  const listed = models.map((model) => model.listed);
  const answersToAny = config.anyModelName;
  const nameOf = (given: unknown): string => resolvedName(given, { models: listed, answersToAny });
  const doors = new Map(models.map((model) => [model.setting.name, doorOf(model, set, shared)]));
  const door: LineDoor = async (line) => await doors.get(nameOf(line.body.model))!(line);
  const entry = {
    door,
    models: answersToAny ? null : listed.map(({ name }) => name),
    room: smallestRoom(models),
  };
  const jobs = store === null ? null : runJobs(store, jobSettings(config), entry);
  const telemetry = openTelemetry(config, "", "server", [], () => null, gap, ledger);
  const present = (): Telemetry[] => models.flatMap((model) => model.telemetry ?? []);
  const scrape = new Scrape(async () =>
    mergedMetrics(await Promise.all([telemetry, ...present()].map((one) => one.text()))),
  );
  const sources = () => {
    const hosts = set.loaded();
    return {
      version,
      model: listed[0]!.model,
      lifecycle,
      specs: hosts.flatMap(({ engines }) => engines.specs),
      fleet: { loads: () => hosts.flatMap(({ engines }) => engines.fleet.loads()) },
      placements: { last: () => hosts.flatMap(({ placements }) => placements.last()) },
      telemetry: { computed: computedBy(present()) },
      jobs,
    };
  };
  const state = (isAdmin: boolean): object => {
    const known = set.states().map(({ name, phase, bytes, waiting }) => ({ name, phase, bytes, waiting }));
    return { ...(isAdmin ? snapshotOf(sources()) : factsOf(sources())), memoryBytes, models: known };
  };
  const stateStreams = new StateStreams({
    facts: () => factsOf(sources()),
    snapshot: () => snapshotOf(sources()),
    activities: () => set.loaded().map(({ activity }) => activity),
    inspect: (nodesMax) => {
      for (const { engines } of set.loaded()) engines.inspect(nodesMax);
    },
    queue: () => set.loaded().flatMap(({ engines }) => engines.fleet.queue()),
    keyUse: (tenant) => ledger.rows(tenant, 1),
    latencies: () => present().map(({ latencies }) => latencies),
    lifecycle,
    limits: defaultHttpLimits,
    lists: stateLists({ requestRecords, jobs }, () => set.loaded().map(({ programs }) => programs)),
  });
  const routes = severalRoutes({
    set,
    models: listed,
    answersToAny,
    lifecycle,
    version,
    responses,
    streams,
    cacheRecords,
    requestRecords,
    ledger,
    jobs,
    metrics: async () =>
      new Response(await scrape.text(), { headers: { "content-type": telemetry.contentType } }),
    state,
    stateStream: (call) => stateStreams.open(call),
    beginsMs: BEGINS_MS,
    limits: defaultHttpLimits,
  });
  const limits = defaultHttpLimits;
  const bodies = new BodyReader(limits, json);
  const origins = originRules(config);
  const app = createApp({ routes, telemetry, lifecycle, keys, origins, bodies, limits, refuse: refusalOn });
  front.serve(app.fetch, jobs?.runner ?? null);
  lifecycle.becomeReady();
  // Clients have connected already: their requests wait for a model that is being loaded.
  if (predecessor !== null) loadPinned().catch((error: Error) => console.error(error.message));

  return {
    url: server.origin,
    model: listed[0]!.name,
    startTimes: null,
    notes,
    get active() {
      return lifecycle.active;
    },
    lost: new Promise(() => {}), // a lost model is loaded again by the next request for it
    handedOver: front.handedOver,
    whenLeft: () => server.leave(),
    reloadKeys: () => keys.reload(),
    async drain(timeoutMs) {
      const startedMs = performance.now();
      const drained = lifecycle.drain(timeoutMs);
      set.refuse();
      await front.stopJobs();
      const cut = await drained;
      await Promise.race([
        server.stop(),
        Bun.sleep(Math.max(100, timeoutMs - (performance.now() - startedMs))),
      ]);
      await front.close();
      await close();
      return cut;
    },
  };
}

/** Memory for all models by default: free memory less the reserve; on GPUs that of the fullest one. */
async function freeBytes({ device }: Config): Promise<number> {
  if (device.kind === "simulated") return Number.POSITIVE_INFINITY;
  const { library, gpus } = await chooseBackend(device);
  const native = openLibrary(library);
  const free =
    gpus === null
      ? native.machineProbe().memoryFreeBytes
      : Math.min(...gpus.map((gpu) => native.deviceProbe(gpu).memoryFreeBytes));
  return free - reserveOf(free);
}

/**
 * Plans a model and opens its text. By default its KV cache takes what an equal share of the memory leaves for
 * it, or one full context if the share is too small.
 */
async function openModel(setting: ModelSetting, memoryBytes: number, count: number): Promise<OpenModel> {
  const { name, path, config } = setting;
  const { device } = config;
  try {
    const backend = device.kind === "simulated" ? null : await chooseBackend(device);
    const share = { limitBytes: memoryBytes / count, isLean: false };
    const lean = { limitBytes: Number.POSITIVE_INFINITY, isLean: true };
    let bytes = 0;
    const note = (plan: Parameters<StartEvents["onPlan"]>[0]): void => {
      bytes = plannedBytes(plan.memory);
    };
    const prepared =
      device.kind === "simulated"
        ? prepareSimulated(config, path, device.engines)
        : prepareNative(config, path, backend!, note, [share, lean]);
    if (device.kind === "simulated") bytes = prepared.folder.weightFilesBytes;
    const text = openText(prepared.folder.dir, config);
    const own = servedModelOf(config, prepared, text);
    const { temperature, "top-k": topK, "top-p": topP, "min-p": minP } = setting.sampling;
    const defaults = own.generationDefaults;
    const model = {
      ...own,
      keepsAlive: true,
      generationDefaults: {
        ...defaults,
        temperature: temperature ?? defaults.temperature,
        topK: topK ?? defaults.topK,
        topP: topP ?? defaults.topP,
        minP: minP ?? defaults.minP,
        repetitionPenalty: setting.sampling["repetition-penalty"] ?? defaults.repetitionPenalty,
      },
    };
    const about = aboutOf(prepared.folder);
    const listed = { name, model, template: text.template, about, isOnGpu: (backend?.gpus ?? null) !== null };
    const facts = factsFor(config, prepared, text);
    const sessions = new SessionTable();
    return { setting, prepared, bytes, text, facts, listed, sessions, engines: null, telemetry: null };
  } catch (error) {
    throw new ConfigError(`The model ${name} cannot be served: ${(error as Error).message}`);
  }
}

/** Throws ConfigError if a model can never be loaded beside the pinned ones. */
function expectFit(models: readonly OpenModel[], memoryBytes: number): void {
  const pinned = models.filter(({ setting }) => setting.isPinned);
  const pinnedBytes = pinned.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const { setting, bytes } of models) {
    const besideBytes = setting.isPinned ? pinnedBytes - bytes : pinnedBytes;
    if (bytes + besideBytes <= memoryBytes) continue;
    const beside = besideBytes > 0 ? ` beside ${formatBytes(besideBytes)} of pinned models` : "";
    throw new ConfigError(
      `The model ${setting.name} takes ${formatBytes(bytes)}${beside}, and --memory is ${formatBytes(memoryBytes)}.`,
    );
  }
}

/** Bytes that a disk gives in a millisecond, for the estimate of a first load. */
const DISK_BYTES_PER_MS = 2 ** 20;

function rowOf(model: OpenModel, shared: Shared): ModelRow<Host> {
  const { setting, prepared, bytes } = model;
  return {
    name: setting.name,
    bytes,
    loadMs: prepared.folder.weightFilesBytes / DISK_BYTES_PER_MS,
    isPinned: setting.isPinned,
    keepAliveMs: setting.config.keepAlive,
    check: () => void openModelFolder(setting.path),
    load: async (onLoading) => {
      expectFree(model);
      return await loadHost(model, shared, onLoading);
    },
  };
}

/** Throws an error if the machine has less free memory than the model takes: other programs have it. */
function expectFree({ prepared: { device }, bytes }: OpenModel): void {
  if (device.kind !== "cpu") return;
  const { memoryFreeBytes } = openLibrary(device.library).machineProbe();
  if (bytes > memoryFreeBytes)
    throw new Error(
      `it takes ${formatBytes(bytes)}, and the machine has ${formatBytes(memoryFreeBytes)} free`,
    );
}

async function loadHost(
  model: OpenModel,
  shared: Shared,
  onLoading: (share: number | null) => void,
): Promise<Host> {
  const { setting, prepared, text, facts, listed } = model;
  const {
    lifecycle: server,
    compiler,
    responses,
    streams,
    cacheRecords,
    requestRecords,
    ledger,
    gap,
    events,
  } = shared;
  const { config } = setting;
  const lifecycle = new ModelLifecycle(server);
  const lost = Promise.withResolvers<string>();
  const telemetryFor = ({ specs }: RunningEngines): Telemetry =>
    openTelemetry(config, setting.name, "model", specs, () => model.engines, gap, ledger);
  const watched = await startWatchedEngines(
    config,
    prepared,
    Promise.resolve(facts),
    {
      ...events,
      onProgress: ({ bytesDone, bytesTotal }) => onLoading(bytesTotal > 0 ? bytesDone / bytesTotal : null),
    },
    (engines) => {
      model.engines = engines;
      model.telemetry ??= telemetryFor(engines);
      return model.telemetry;
    },
    (reason) => {
      lifecycle.becomeLost(reason);
      lost.resolve(reason);
    },
  );
  const { engines, placements, activity } = watched;
  const { fleet, specs } = engines;
  const { contextMax, folder, device } = prepared;
  model.sessions.history.loseAll(); // its pages went with the engines before
  const deps = composeModel({
    ...text,
    ...watched,
    model: listed.model,
    about: listed.about,
    programModels: new Map(),
    lifecycle,
    responses,
    streams,
    cacheRecords,
    sessions: model.sessions,
    sessionPolicy: sessionPolicyOf(config),
    requestRecords,
    fleet,
    specs,
    facts: {
      contextMax,
      eosTokens: endTokensOf(folder, text.tokenizer),
      isHeadless: folder.config.isHeadless ?? false,
    },
    compile: (source) => compiler.compile(source, device.kind === "cpu" && fleet.active > 0),
    cacheSaltFor: cacheSalts(config),
    speaksParrot: false,
    reasoningField: config.reasoningField,
    version,
    limits: defaultHttpLimits,
  });
  return {
    routes: routesOf({ ...deps, jobs: null }),
    programs: deps.programs,
    lineServices: lineServices(deps),
    engines,
    placements,
    activity,
    lost: lost.promise,
    whenIdle: async () => {
      while (lifecycle.active > 0 || deps.programs.active > 0)
        await Promise.all([lifecycle.whenIdle(), deps.programs.whenIdle()]);
    },
    close: async () => {
      model.engines = null;
      deps.generator.close();
      text.encoder.close();
      await engines.close();
    },
  };
}

/** Entry of a model's batch lines: they are prepared without engines, and hold the model while it answers. */
function doorOf({ setting, text, listed }: OpenModel, set: ModelSet<Host>, { responses }: Shared): LineDoor {
  const { name } = setting;
  const host = (): Host => set.expectPresent(name);
  const door = lineDoor({
    ...text,
    encoder: text.encoder.forJobs(),
    model: listed.model,
    responses,
    reasoningField: setting.config.reasoningField,
    get fleet() {
      return host().engines.fleet;
    },
    get services() {
      return host().lineServices;
    },
  });
  return async (line) => {
    const prepared = await door(line);
    const answer: typeof prepared.answer = async (signal) => {
      const lease = await set.use(name, signal);
      try {
        return await prepared.answer(signal);
      } finally {
        lease.end();
      }
    };
    return { ...prepared, answer };
  };
}

/** Room for batch lines: that of the model with the least, since a batch may name any. */
function smallestRoom(models: readonly OpenModel[]): ReturnType<typeof batchRoom> {
  const rooms = models.map(({ prepared }) => batchRoom(plannedSpecs(prepared)));
  return rooms.reduce((least, room) => (room.tokens < least.tokens ? room : least));
}

function plannedSpecs({ device, engines }: Prepared): Parameters<typeof batchRoom>[0] {
  const spec = device.kind === "simulated" ? device.spec : device.limits;
  return Array.from({ length: engines }, () => spec);
}

function computedBy(telemetries: readonly Telemetry[]): Telemetry["computed"] {
  const sum = { requests: 0, jobs: 0 };
  for (const { computed } of telemetries) {
    sum.requests += computed.requests;
    sum.jobs += computed.jobs;
  }
  return sum;
}

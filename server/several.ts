/** Composition of a server with several models, which are loaded when requests name them. */

import { formatBytes } from "../gpu/memory.ts";
import { openLibrary } from "../gpu/native.ts";
import { openModelFolder } from "../model/folder.ts";
import { CacheRecords } from "./api/cache-records.ts";
import { batchRoom, lineServices, runJobs } from "./api/jobs.ts";
import { type LineServices, lineDoor } from "./api/openai/batch-line.ts";
import { refusalOn } from "./api/refusals.ts";
import type { KeptResponses } from "./api/responses/kept.ts";
import { routesOf, stateLists } from "./api/routes.ts";
import { type ModelHost, resolvedName, severalRoutes } from "./api/several.ts";
import { composeModel } from "./compose.ts";
import { type Config, ConfigError } from "./config.ts";
import type { RunningEngines } from "./engines/start.ts";
import { RequestRecords } from "./explain/request-records.ts";
import { Front } from "./front.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
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
  openTelemetry,
  type Prepared,
  startWatchedEngines,
  type WatchServices,
} from "./open-model.ts";
import { namesWithAdapters } from "./request/served-model.ts";
import { type EngineEvents, type RunningServer, STOPPING, type StartEvents } from "./running-server.ts";
import { jobSettings, originRules, quotaNotes, sessionPolicyOf } from "./server-parts.ts";
import { JOBS_NAME, type OpenModel, severalOpening } from "./several-opening.ts";
import { version } from "./version.ts";

/** Loaded model: its routes, engines and activity. */
interface Host extends ModelHost {
  readonly engines: RunningEngines;
  readonly placements: Parts["placements"];
  readonly activity: Parts["activity"];
  readonly lineServices: LineServices["services"];
  readonly keptPrefixes: LineServices["keptPrefixes"];
}

type Parts = Awaited<ReturnType<typeof startWatchedEngines>>;

/** Services that all models share. */
interface Shared extends WatchServices {
  readonly config: Config;
  readonly lifecycle: Lifecycle;
  readonly compiler: ConstraintCompiler;
  readonly responses: KeptResponses;
  readonly streams: KeptStreams;
  readonly cacheRecords: CacheRecords;
  readonly requestRecords: RequestRecords;
  readonly events: EngineEvents;
}

/** Loading time after which a streaming request gets its headers, and progress as comments. */
const BEGINS_MS = 1000;

/** Serves all models of `settings`. Errors that a person can mend have a sentence for people as their message. */
export async function startSeveral(
  config: Config,
  settings: readonly ModelSetting[],
  events: StartEvents,
): Promise<RunningServer> {
  const lifecycle = new Lifecycle("loading");
  const opening = severalOpening(config, settings, events, lifecycle);
  await opening.guarded();
  const keys = await opening.keys();
  const predecessor = await opening.predecessor();
  const memoryBytes = await opening.memoryBytes();
  const models = await opening.models();
  const notes = [
    ...models.flatMap(({ setting, prepared, text }) =>
      modelNotes(prepared.folder, text.template).map((note) => `the model ${setting.name}: ${note}`),
    ),
  ];
  const stores = await opening.stores();
  const address = await opening.address();
  const front =
    stores === null || address === null
      ? await Front.takeOver(config, JOBS_NAME, lifecycle, predecessor!)
      : new Front(stores, address);
  const { responses, store, server } = front;
  notes.push(...quotaNotes(config, keys));
  if (front.jobsNote !== null) notes.push(front.jobsNote);
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const json = new JsonReader(new URL("./http/json/worker.ts", import.meta.url).href);
  const gap = new ThreadGap();
  const cacheRecords = new CacheRecords();
  const requestRecords = new RequestRecords();
  const streams = new KeptStreams(defaultHttpLimits);
  const ledger = await opening.ledger();
  const traces = await opening.traces();
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
    traces,
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
    models: answersToAny ? null : listed.flatMap(({ model }) => namesWithAdapters(model)),
    room: smallestRoom(models),
    traces,
  };
  const jobs = store === null ? null : runJobs(store, jobSettings(config), entry);
  const telemetry = openTelemetry(config, "", new Map(), "server", [], () => null, shared);
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
    inspect: (nodesMax, owner) => {
      for (const { engines } of set.loaded()) engines.inspect({ nodesMax, textTokens: 0, owner });
    },
    cacheSaltFor: cacheSalts(config),
    queue: () => set.loaded().flatMap(({ engines }) => engines.fleet.queue()),
    keyUse: (tenant) => ledger.rows(tenant, 1),
    latencies: () => present().map(({ latencies }) => latencies),
    requestRecords,
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
      for (const { programs } of set.loaded()) programs.closeAll(STOPPING);
      await Promise.race([
        server.stop(),
        Bun.sleep(Math.max(100, timeoutMs - (performance.now() - startedMs))),
      ]);
      await Promise.all([front.close(), traces?.close()]);
      await close();
      return cut;
    },
  };
}

/** Assumed read speed of the disk, for the estimate of a model's first load. */
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
  const { lifecycle: server, compiler, responses, streams, cacheRecords, requestRecords, events } = shared;
  const { config } = setting;
  const lifecycle = new ModelLifecycle(server);
  const lost = Promise.withResolvers<string>();
  const telemetryFor = ({ specs }: RunningEngines): Telemetry =>
    openTelemetry(config, setting.name, prepared.adapters, "model", specs, () => model.engines, shared);
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
    keptPrefixes: deps.keptPrefixes,
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

/** Gateway for batch lines of a model: tokenises them without engines, and keeps the model loaded while they run. */
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
    get keptPrefixes() {
      return host().keptPrefixes;
    },
  });
  return async (line) => {
    const prepared = await door(line);
    const answer: typeof prepared.answer = async (signal, trace) => {
      const lease = await set.use(name, signal);
      try {
        return await prepared.answer(signal, trace);
      } finally {
        lease.end();
      }
    };
    return { ...prepared, answer };
  };
}

/** Capacity for batch lines: that of the model with the smallest KV cache, since a batch may name any model. */
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

/** Composition of the server: configuration → plan → engines → text → HTTP. */

import { expectText } from "../text/model-text.ts";
import { type ProgramModel, readProgramModels } from "./api/programs/files.ts";
import { demoModelFolder } from "./assets.ts";
import { type ComposedServer, composeServer } from "./compose.ts";
import { type Config, ConfigError } from "./config.ts";
import type { RunningEngines, TextFacts } from "./engines/start.ts";
import { Front } from "./front.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
import { findPredecessor } from "./hand-over/predecessor.ts";
import { type ApiKeys, cacheSalts } from "./http/auth.ts";
import { ThreadGap } from "./http/gap.ts";
import { JsonReader } from "./http/json/reader.ts";
import { Lifecycle } from "./http/lifecycle.ts";
import { defaultHttpLimits } from "./http/limits.ts";
import type { Telemetry } from "./http/telemetry.ts";
import type { JobStore } from "./jobs/store.ts";
import { modelNotes } from "./model-notes.ts";
import { modelsOf } from "./models/model-settings.ts";
import {
  endTokensOf,
  factsFor,
  openTelemetry,
  openText,
  type Prepared,
  prepare,
  servedModelOf,
  startWatchedEngines,
  type TextServices,
  type WatchedEngines,
} from "./open-model.ts";
import { aboutOf, type ServedModel } from "./request/served-model.ts";
import type { RunningServer, StartEvents } from "./running-server.ts";
import { jobSettings, openKeys, openLedger, originRules, sessionPolicyOf } from "./server-parts.ts";
import { startSeveral } from "./several.ts";
import { openTraces } from "./trace/open-traces.ts";
import { version } from "./version.ts";

/**
 * Loads the model in `dir` (null: the one that comes with Bunting) and serves it. Errors that a person can
 * mend have a sentence for people as their message.
 */
export async function startServer(
  config: Config,
  dir: string | null,
  events: StartEvents,
): Promise<RunningServer> {
  const models = modelsOf(config, dir);
  if (models.length > 0) return await startSeveral(config, models, events);
  const keys = openKeys(config);
  const predecessor = config.takeOver ? await findPredecessor(config) : null;
  const prepared = await prepare(config, dir ?? (await demoModelFolder()), (plan) => {
    expectText(plan.folder.dir);
    events.onPlan(plan);
  });
  const lifecycle = new Lifecycle("loading");
  const lost = Promise.withResolvers<string>();
  const gap = new ThreadGap();
  const ledger = openLedger(config);
  const traces = await openTraces(config);
  const telemetryFor = (engines: RunningEngines): Telemetry =>
    openTelemetry(config, prepared.names[0]!, "all", engines.specs, () => engines, { gap, ledger, traces });
  const facts = Promise.withResolvers<TextFacts>();
  const watchedEvents: StartEvents = {
    ...events,
    onProgress: (progress) => {
      const { stage, bytesDone: doneBytes, bytesTotal: totalBytes } = progress;
      lifecycle.loading = { stage, doneBytes, totalBytes };
      events.onProgress(progress);
    },
  };
  const starting = startWatchedEngines(
    config,
    prepared,
    facts.promise,
    watchedEvents,
    telemetryFor,
    (reason) => {
      lifecycle.becomeLost(reason);
      lost.resolve(reason);
    },
  );
  const [jobsName] = prepared.names as [string];
  const openFront = predecessor === null ? () => Front.open(config, jobsName, lifecycle) : () => null;
  const opened = openWhileLoading(config, prepared, openFront, facts, starting);
  const { text, model, programModels } = opened;
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const watched = await starting.catch(async (error: Error) => {
    gap.close();
    await opened.front?.close();
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(`The model cannot be loaded: ${error.message}`);
  });
  const front = opened.front ?? (await Front.takeOver(config, jobsName, lifecycle, predecessor!));
  const { responses, store, jobsNote, server } = front;
  const json = new JsonReader(new URL("./http/json/worker.ts", import.meta.url).href);
  const deps = { ...text, ...watched, json, compiler, model, programModels, lifecycle, keys, responses };
  const { app, generator, jobs } = compose(config, prepared, deps, store);
  front.serve(app.fetch, jobs?.runner ?? null);
  lifecycle.becomeReady();

  return {
    url: server.origin,
    model: prepared.names[0]!,
    startTimes: watched.engines.startTimes,
    notes: [watched.engines.packedNote, ...modelNotes(prepared.folder, text.template), jobsNote].filter(
      (note) => note !== null,
    ),
    get active() {
      return lifecycle.active;
    },
    lost: lost.promise,
    handedOver: front.handedOver,
    whenLeft: () => server.leave(),
    reloadKeys: () => keys.reload(),
    async drain(timeoutMs) {
      const startedMs = performance.now();
      const drained = lifecycle.drain(timeoutMs);
      await front.stopJobs();
      const cut = await drained;
      // Answers are complete; their sockets may send buffered data for the rest of the time.
      await Promise.race([
        server.stop(),
        Bun.sleep(Math.max(100, timeoutMs - (performance.now() - startedMs))),
      ]);
      await Promise.all([front.close(), traces?.close()]);
      generator.close();
      text.encoder.close();
      compiler.close();
      json.close();
      gap.close();
      ledger.close();
      await watched.engines.close();
      return cut;
    },
  };
}

/**
 * Opens everything that needs no engines, the text above all, and settles `facts`. The engines load
 * meanwhile. If it throws, nobody waits for them. The front is null if another process has it as yet.
 */
function openWhileLoading(
  config: Config,
  prepared: Prepared,
  openFront: () => Front | null,
  facts: PromiseWithResolvers<TextFacts>,
  starting: Promise<WatchedEngines>,
) {
  try {
    const text = openText(prepared.folder.dir, config);
    const model = servedModelOf(config, prepared, text);
    const programModels = config.programs === null ? new Map() : readProgramModels(config.programs, model);
    const front = openFront();
    facts.resolve(factsFor(config, prepared, text));
    return { text, model, programModels, front };
  } catch (error) {
    facts.reject(error);
    starting.catch(() => {});
    throw error;
  }
}

/** Services that the composition gets besides the configuration. */
interface AppServices extends TextServices, WatchedEngines {
  readonly json: JsonReader;
  readonly compiler: ConstraintCompiler;
  readonly lifecycle: Lifecycle;
  readonly keys: ApiKeys;
  readonly model: ServedModel;
  readonly programModels: ReadonlyMap<string, ProgramModel>;
  readonly responses: Front["responses"];
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
    facts: {
      contextMax,
      eosTokens: endTokensOf(folder, services.tokenizer),
      isHeadless: folder.config.isHeadless ?? false,
    },
    compile: (source) => compiler.compile(source, device.kind === "cpu" && fleet.active > 0),
    about: aboutOf(folder),
    cacheSaltFor: cacheSalts(config),
    sessionPolicy: sessionPolicyOf(config),
    speaksParrot: config.parrotApi,
    reasoningField: config.reasoningField,
    version,
    limits: defaultHttpLimits,
    origins: originRules(config),
    jobs: store === null ? null : { store, settings: jobSettings(config) },
  });
}

/** Composition of the server: configuration → plan → engines → text → HTTP. */

import { expectText } from "../text/model-text.ts";
import { type ProgramModel, readProgramModels } from "./api/programs/files.ts";
import { refusalOn } from "./api/refusals.ts";
import { KeptResponses } from "./api/responses/kept.ts";
import { demoModelFolder } from "./assets.ts";
import { type ComposedServer, composeServer } from "./compose.ts";
import { type Config, ConfigError } from "./config.ts";
import type { RunningEngines, TextFacts } from "./engines/start.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
import { type ApiKeys, cacheSalts } from "./http/auth.ts";
import { ThreadGap } from "./http/gap.ts";
import { JsonReader } from "./http/json/reader.ts";
import { Lifecycle } from "./http/lifecycle.ts";
import { defaultHttpLimits } from "./http/limits.ts";
import { listen } from "./http/listen.ts";
import type { Telemetry } from "./http/telemetry.ts";
import { openJobs } from "./jobs/data-folder.ts";
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
import { jobSettings, openKeys, originRules } from "./server-parts.ts";
import { startSeveral } from "./several.ts";
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
  const prepared = await prepare(config, dir ?? (await demoModelFolder()), (plan) => {
    expectText(plan.folder.dir);
    events.onPlan(plan);
  });
  const lifecycle = new Lifecycle("loading");
  const lost = Promise.withResolvers<string>();
  const gap = new ThreadGap();
  const telemetryFor = (engines: RunningEngines): Telemetry =>
    openTelemetry(config, prepared.names[0]!, "all", engines.specs, () => engines, gap);
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
  const opened = openWhileLoading(config, prepared, lifecycle, facts, starting);
  const { text, model, programModels, store, jobsNote, responses, server } = opened;
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const watched = await starting.catch(async (error: Error) => {
    gap.close();
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
    notes: [watched.engines.packedNote, ...modelNotes(prepared.folder, text.template), jobsNote].filter(
      (note) => note !== null,
    ),
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
      gap.close();
      await watched.engines.close();
      return cut;
    },
  };
}

/**
 * Opens everything that needs no engines, the text above all, and settles `facts`. The engines load
 * meanwhile. If it throws, nobody waits for them.
 */
function openWhileLoading(
  config: Config,
  prepared: Prepared,
  lifecycle: Lifecycle,
  facts: PromiseWithResolvers<TextFacts>,
  starting: Promise<WatchedEngines>,
) {
  try {
    const text = openText(prepared.folder.dir, config);
    const model = servedModelOf(config, prepared, text);
    const programModels = config.programs === null ? new Map() : readProgramModels(config.programs, model);
    const { store, note: jobsNote } = openJobs(config, prepared.names[0]!);
    const responses = new KeptResponses(typeof config.data === "object" ? config.data.folder : null);
    const server = listen(config, lifecycle, refusalOn);
    facts.resolve(factsFor(config, prepared, text));
    return { text, model, programModels, store, jobsNote, responses, server };
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
    facts: {
      contextMax,
      eosTokens: endTokensOf(folder, services.tokenizer),
      isHeadless: folder.config.isHeadless ?? false,
    },
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

/** Composition of the server: configuration → plan → engines → text → HTTP. */

import type { ProgramModel } from "./api/programs/files.ts";
import { type ComposedServer, composeServer } from "./compose.ts";
import { type Config, ConfigError } from "./config.ts";
import type { RunningEngines, TextFacts } from "./engines/start.ts";
import { Front } from "./front.ts";
import { ConstraintCompiler } from "./grammar/compiler.ts";
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
  openTelemetry,
  type Prepared,
  startWatchedEngines,
  type TextServices,
  type WatchedEngines,
} from "./open-model.ts";
import { type Opening, openingOf } from "./opening.ts";
import { aboutOf, type ServedModel } from "./request/served-model.ts";
import { type RunningServer, STOPPING, type StartEvents } from "./running-server.ts";
import { jobSettings, originRules, quotaNotes, sessionPolicyOf } from "./server-parts.ts";
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
  const lifecycle = new Lifecycle("loading");
  const opening = openingOf(config, dir, events, lifecycle);
  await opening.guarded();
  const keys = await opening.keys();
  const predecessor = await opening.predecessor();
  const prepared = await opening.prepared();
  const ledger = await opening.ledger();
  const traces = await opening.traces();
  await opening.recording();
  const lost = Promise.withResolvers<string>();
  const gap = new ThreadGap();
  const telemetryFor = (engines: RunningEngines): Telemetry =>
    openTelemetry(config, prepared.names[0]!, prepared.adapters, "all", engines.specs, () => engines, {
      gap,
      ledger,
      traces,
    });
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
  starting.catch(() => {}); // awaited below
  const opened = await openWhileLoading(opening, facts);
  const { text, model, programModels } = opened;
  const compiler = new ConstraintCompiler(new URL("./grammar/worker.ts", import.meta.url).href);
  const watched = await starting.catch(async (error: Error) => {
    gap.close();
    await opened.front?.close();
    if (error instanceof ConfigError) throw error;
    throw new ConfigError(`The model cannot be loaded: ${error.message}`);
  });
  const front = opened.front ?? (await Front.takeOver(config, prepared.names[0]!, lifecycle, predecessor!));
  const { responses, store, jobsNote, server } = front;
  const json = new JsonReader(new URL("./http/json/worker.ts", import.meta.url).href);
  const deps = { ...text, ...watched, json, compiler, model, programModels, lifecycle, keys, responses };
  const { app, generator, programs, jobs } = compose(config, prepared, deps, store);
  front.serve(app.fetch, jobs?.runner ?? null);
  lifecycle.becomeReady();

  return {
    url: server.origin,
    model: prepared.names[0]!,
    startTimes: watched.engines.startTimes,
    notes: [
      watched.engines.packedNote,
      ...modelNotes(prepared.folder, text.template),
      ...quotaNotes(config, keys),
      jobsNote,
    ].filter((note) => note !== null),
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
      programs.closeAll(STOPPING);
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
 * meanwhile. The front is null if another process has it as yet.
 */
async function openWhileLoading(opening: Opening, facts: PromiseWithResolvers<TextFacts>) {
  try {
    const text = await opening.text();
    const model = await opening.model();
    const programModels = await opening.programModels();
    const stores = await opening.stores();
    const address = await opening.address();
    const front = stores === null || address === null ? null : new Front(stores, address);
    facts.resolve(await opening.facts());
    return { text, model, programModels, front };
  } catch (error) {
    facts.reject(error);
    throw error;
  }
}

/** Services for `compose`, besides the configuration. */
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
    recording: config.record,
    jobs: store === null ? null : { store, settings: jobSettings(config) },
  });
}

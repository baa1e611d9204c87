/** Composition of the part of the server that answers requests: generator, programs, jobs, routes and HTTP app. */

import type { ConstraintSource } from "../grammar/source.ts";
import type { AdapterId, EngineId } from "../scheduler/core.ts";
import type { Fleet } from "../scheduler/fleet/fleet.ts";
import type { SessionPolicy } from "../scheduler/policy.ts";
import { SessionKeeper } from "../scheduler/session/session-keeper.ts";
import { SessionTable } from "../scheduler/session/session-table.ts";
import { CacheAccount } from "./answer/cache-account.ts";
import type { CacheOutcome } from "./answer/cache-outcome.ts";
import type { ModelFacts } from "./answer/generation.ts";
import { Generator } from "./answer/generator.ts";
import { KeptPrefixes } from "./api/anthropic/kept-prefixes.ts";
import { CacheRecords } from "./api/cache-records.ts";
import { startJobs } from "./api/jobs.ts";
import { described } from "./api/openapi/document.ts";
import { refusalOn } from "./api/refusals.ts";
import { streamRoutes, withResumableStreams } from "./api/resumable.ts";
import type { RouteDeps } from "./api/route-deps.ts";
import { routesOf } from "./api/routes.ts";
import { WhatIf } from "./api/what-if.ts";
import { RequestRecords } from "./explain/request-records.ts";
import type { Compiled } from "./grammar/compiler.ts";
import { type App, type AppDeps, createApp } from "./http/app.ts";
import { BodyReader } from "./http/body.ts";
import type { JsonReader } from "./http/json/reader.ts";
import { KeptStreams } from "./http/kept-streams.ts";
import type { HttpLimits } from "./http/limits.ts";
import type { JobService, JobSettings } from "./jobs/service.ts";
import type { JobStore } from "./jobs/store.ts";
import type { HostLimits } from "./program/limits.ts";
import { openPrograms, type Programs } from "./program/programs.ts";
import { realClock } from "./real-clock.ts";
import { nameWith } from "./request/served-model.ts";
import type { Encoder } from "./text/encoder.ts";

type GivenToRoutes = Omit<
  RouteDeps,
  "fleet" | "generator" | "programs" | "keptPrefixes" | "jobs" | "limits" | "recordCache" | "recordRequest"
>;

/** Running engines of a model with its tokenizer, chat template and limits. */
export interface ModelParts extends GivenToRoutes {
  readonly encoder: Encoder;
  readonly fleet: Fleet;
  readonly facts: ModelFacts;
  readonly compile: (source: ConstraintSource) => Promise<Compiled>;
  /** Sessions and past prompts of the model. They outlive its engines when it is unloaded and loaded again. */
  readonly sessions: SessionTable;
  /** Null: prompts belong to no sessions. */
  readonly sessionPolicy: SessionPolicy | null;
  readonly limits: HttpLimits;
  /** Number of engines on which calls of programs may run; absent: all. */
  readonly programEngines?: number;
  readonly programLimits?: Partial<HostLimits>;
}

/** Parts of one model, and settings of its server. */
export interface ServerParts
  extends Omit<ModelParts, "sessions" | "cacheRecords" | "requestRecords" | "streams">,
    Pick<AppDeps, "keys" | "origins"> {
  readonly json: JsonReader;
  /** Path of the recording; absent or null: nothing is recorded. */
  readonly recording?: string | null;
  /** null: the server keeps no jobs. */
  readonly jobs: {
    readonly store: JobStore;
    readonly settings: JobSettings;
    readonly retryMs?: number;
  } | null;
}

export interface ComposedServer {
  readonly app: App;
  readonly generator: Generator;
  readonly programs: Programs;
  readonly jobs: JobService | null;
}

/** Creates the services of one model: generator, sessions, kept prefixes, programs and recorders. */
export function composeModel<Parts extends ModelParts>(parts: Parts) {
  const {
    fleet,
    specs,
    tokenizer,
    facts,
    compile,
    telemetry,
    sessions: table,
    sessionPolicy: policy,
  } = parts;
  const onOutcome = (outcome: CacheOutcome, engine: EngineId): void =>
    telemetry.countCacheOutcome(outcome, engine);
  const account = new CacheAccount(fleet, specs, onOutcome, table.history);
  const observer = telemetry.sessions;
  const keeper =
    policy === null ? null : new SessionKeeper({ fleet, specs, clock: realClock, table, policy, observer });
  const generator = new Generator(fleet, tokenizer, facts, compile, account, keeper);
  const nameOf = (adapter: AdapterId): string => nameWith(adapter, parts.model);
  const recordCache = parts.cacheRecords.recorder(nameOf, tokenizer);
  const recordRequest = parts.requestRecords.recorder(nameOf, (ms) => telemetry.countCauses(ms));
  const engines = parts.programEngines ?? specs.length;
  const programs = openPrograms({ ...parts, generator, engines }, parts.programLimits);
  return {
    ...parts,
    keptPrefixes: new KeptPrefixes(fleet, specs),
    generator,
    recordCache,
    recordRequest,
    programs,
  };
}

/** Creates the HTTP app and the job service of a server with one model. Unfinished jobs resume. */
export function composeServer(parts: ServerParts): ComposedServer {
  const { limits, jobs: kept } = parts;
  const streams = new KeptStreams(limits);
  const served = composeModel({
    ...parts,
    sessions: new SessionTable(),
    cacheRecords: new CacheRecords(),
    requestRecords: new RequestRecords(),
    streams,
  });
  const { generator, programs } = served;
  const jobs = kept === null ? null : startJobs(kept.store, kept.settings, served, kept.retryMs);
  const workerUrl = new URL("./cli/simulate/recorded/worker.ts", import.meta.url).href;
  const whatIf = new WhatIf(parts.recording == null ? null : { path: parts.recording, workerUrl });
  const table = [...routesOf({ ...served, jobs }), ...streamRoutes(streams), whatIf.route()];
  const routes = described(withResumableStreams(table, streams));
  const bodies = new BodyReader(limits, parts.json);
  const app = createApp({ ...parts, routes, bodies, refuse: refusalOn });
  return { app, generator, programs, jobs };
}

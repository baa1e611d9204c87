/**
 * Batch jobs on the served model: their lines enter through the same gateway as requests and use spare engine
 * capacity.
 */

import type { BatchRoom } from "../../scheduler/batch/batch-admission.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { ReasoningField } from "../config.ts";
import type { CacheSaltFor } from "../http/auth.ts";
import { defaultJsonLimits } from "../http/limits.ts";
import type { Telemetry } from "../http/telemetry.ts";
import type { LineDoor } from "../jobs/door.ts";
import { openaiForm } from "../jobs/openai-form.ts";
import { PreparedLines } from "../jobs/prepared-lines.ts";
import { MESSAGES } from "../jobs/records.ts";
import { JobRunner } from "../jobs/runner.ts";
import type { JobService, JobSettings } from "../jobs/service.ts";
import type { JobStore } from "../jobs/store.ts";
import { namesWithAdapters } from "../request/served-model.ts";
import type { Encoder } from "../text/encoder.ts";
import type { Traces } from "../trace/traces.ts";
import type { KeptPrefixes } from "./anthropic/kept-prefixes.ts";
import { messageForm } from "./anthropic/line-form.ts";
import type { EmbedServices } from "./embed.ts";
import { type LineServices, lineDoor } from "./openai/batch-line.ts";
import type { Exchange } from "./respond.ts";
import type { ResponsesDeps } from "./responses/responses.ts";

const COMMIT_MS = 50;
const RETRY_MS = 1000;
/** Bytes of one line at most. A single request is limited by the size of its body instead. */
const LINE_BYTES_MAX = 4 * 2 ** 20;

interface JobDeps extends EmbedServices, ResponsesDeps {
  readonly encoder: Encoder;
  readonly cacheSaltFor: CacheSaltFor;
  readonly specs: readonly DeviceSpec[];
  readonly generator: Exchange["services"]["generator"];
  readonly lifecycle: Exchange["services"]["lifecycle"];
  readonly telemetry: Telemetry;
  readonly reasoningField: ReasoningField;
  readonly keptPrefixes: KeptPrefixes;
}

type LineDeps = Pick<JobDeps, "telemetry" | "generator" | "lifecycle" | "cacheSaltFor">;

/** Starts the job service of a server with one model. It resumes unfinished jobs of the store. */
export function startJobs(
  store: JobStore,
  settings: JobSettings,
  deps: JobDeps,
  retryMs = RETRY_MS,
): JobService {
  const { specs, model } = deps;
  const models = model.answersToAny === true ? null : namesWithAdapters(model);
  const door = lineDoor({ ...deps, services: lineServices(deps), encoder: deps.encoder.forJobs() });
  return runJobs(
    store,
    settings,
    { door, models, room: batchRoom(specs), traces: deps.telemetry.traces },
    retryMs,
  );
}

/** Gateway for batch lines, the models that may answer them, and the engines' capacity for them. */
export interface JobEntry {
  readonly door: LineDoor;
  /** null: lines may name any model. */
  readonly models: readonly string[] | null;
  readonly room: BatchRoom;
  /** null: batches are not traced. */
  readonly traces: Traces | null;
}

/** Starts the job service of a server with any number of models. It resumes unfinished jobs of the store. */
export function runJobs(
  store: JobStore,
  settings: JobSettings,
  { door, models, room, traces }: JobEntry,
  retryMs = RETRY_MS,
): JobService {
  const nowSeconds = (): number => Math.floor(Date.now() / 1000);
  const { linesMax, retentionSeconds } = settings;
  const runner = new JobRunner(
    {
      store,
      door,
      formOf: (endpoint) => (endpoint === MESSAGES ? messageForm : openaiForm(endpoint)),
      prepared: new PreparedLines(),
      limits: { linesMax, lineBytesMax: LINE_BYTES_MAX, ...defaultJsonLimits },
      models,
      nowSeconds,
      traces,
      retentionSeconds,
      commitMs: COMMIT_MS,
      retryMs,
    },
    () => room,
  );
  return { store, runner, settings, nowSeconds };
}

/** Services that answer lines. */
export function lineServices({
  telemetry,
  generator,
  lifecycle,
  cacheSaltFor,
}: LineDeps): LineServices["services"] {
  // A line's latency says nothing about online clients: the telemetry counts its tokens only.
  const counted: Exchange["services"]["telemetry"] = {
    observeRequest: () => {},
    countFinished: () => {},
    countTokens: (usage) => telemetry.countTokens(usage, "jobs"),
    ledger: telemetry.ledger,
    log: null,
  };
  return { generator, lifecycle, telemetry: counted, cacheSaltFor, recordCache: null, recordRequest: null };
}

/** Capacity of all engines together: KV-cache tokens, sequences, and tokens of a step. */
export function batchRoom(
  specs: readonly Pick<DeviceSpec, "pages" | "pageTokens" | "stepChunksMax" | "stepTokensMax">[],
): BatchRoom {
  return {
    tokens: specs.reduce((sum, { pages, pageTokens }) => sum + pages * pageTokens, 0),
    sequences: specs.reduce((sum, { stepChunksMax }) => sum + stepChunksMax, 0),
    stepTokens: specs.reduce((sum, { stepTokensMax }) => sum + stepTokensMax, 0),
  };
}

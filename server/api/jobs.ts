/**
 * Batch jobs on the served model: their lines enter through the same gateway as requests and use spare engine
 * capacity.
 */

import type { DeviceSpec } from "../../scheduler/device.ts";
import type { ReasoningField } from "../config.ts";
import type { CacheSaltFor } from "../http/auth.ts";
import { defaultJsonLimits } from "../http/limits.ts";
import type { Telemetry } from "../http/telemetry.ts";
import { PreparedLines } from "../jobs/prepared-lines.ts";
import { JobRunner } from "../jobs/runner.ts";
import type { JobService, JobSettings } from "../jobs/service.ts";
import type { JobStore } from "../jobs/store.ts";
import type { Encoder } from "../text/encoder.ts";
import type { EmbedServices } from "./embed.ts";
import { lineDoor } from "./openai/batch-line.ts";
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
}

/** Starts the job service. It resumes unfinished jobs of the store. */
export function startJobs(
  store: JobStore,
  settings: JobSettings,
  deps: JobDeps,
  retryMs = RETRY_MS,
): JobService {
  const { specs, telemetry, generator, lifecycle, model, cacheSaltFor } = deps;
  const nowSeconds = (): number => Math.floor(Date.now() / 1000);
  // A line's latency says nothing about online clients: the telemetry counts its tokens only.
  const counted: Exchange["services"]["telemetry"] = {
    observeRequest: () => {},
    countFinished: () => {},
    countTokens: (usage) => telemetry.countTokens(usage, "jobs"),
    log: null,
  };
  const services = { generator, lifecycle, telemetry: counted, cacheSaltFor };
  const door = lineDoor({ ...deps, services, encoder: deps.encoder.forJobs() });
  const { linesMax, retentionSeconds } = settings;
  const room = {
    tokens: specs.reduce((sum, { pages, pageTokens }) => sum + pages * pageTokens, 0),
    sequences: specs.reduce((sum, { stepChunksMax }) => sum + stepChunksMax, 0),
    stepTokens: specs.reduce((sum, { stepTokensMax }) => sum + stepTokensMax, 0),
  };
  const runner = new JobRunner(
    {
      store,
      door,
      prepared: new PreparedLines(),
      limits: { linesMax, lineBytesMax: LINE_BYTES_MAX, ...defaultJsonLimits },
      models: model.answersToAny === true ? null : model.names,
      nowSeconds,
      retentionSeconds,
      commitMs: COMMIT_MS,
      retryMs,
    },
    () => room,
  );
  return { store, runner, settings, nowSeconds };
}

import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { Generator } from "../answer/generator.ts";
import type { ReasoningField } from "../config.ts";
import type { RequestRecords } from "../explain/request-records.ts";
import type { ActivityLog } from "../http/activity.ts";
import type { CacheSaltFor } from "../http/auth.ts";
import type { KeptStreams } from "../http/kept-streams.ts";
import type { Lifecycle } from "../http/lifecycle.ts";
import type { PlacementLog } from "../http/state.ts";
import type { StateSources } from "../http/state-stream.ts";
import type { Telemetry } from "../http/telemetry.ts";
import type { JobService } from "../jobs/service.ts";
import type { Programs } from "../program/programs.ts";
import type { PromptServices } from "../request/prompt.ts";
import type { ModelAbout } from "../request/served-model.ts";
import type { KeptPrefixes } from "./anthropic/kept-prefixes.ts";
import type { CacheRecords } from "./cache-records.ts";
import type { ProgramModel } from "./programs/files.ts";
import type { Exchange, RespondLimits } from "./respond.ts";
import type { KeptResponses } from "./responses/kept.ts";

export interface RouteDeps extends PromptServices {
  readonly cacheSaltFor: CacheSaltFor;
  readonly about: ModelAbout;
  readonly fleet: Pick<Fleet, "loads" | "queue" | "submit" | "abort" | "outlook">;
  readonly keptPrefixes: KeptPrefixes;
  /** Devices of the fleet, by engine. */
  readonly specs: readonly DeviceSpec[];
  readonly placements: PlacementLog;
  readonly activity: ActivityLog;
  /** Asks the engines for snapshots of their prefix caches, which arrive in `activity`. */
  readonly inspect: StateSources["inspect"];
  readonly generator: Generator;
  readonly cacheRecords: CacheRecords;
  readonly recordCache: Exchange["services"]["recordCache"];
  readonly requestRecords: RequestRecords;
  readonly recordRequest: Exchange["services"]["recordRequest"];
  readonly programs: Programs;
  /** Programs served as models, by model name. */
  readonly programModels: ReadonlyMap<string, ProgramModel>;
  /** True if the server speaks Parrot's own wire formats too. */
  readonly speaksParrot: boolean;
  readonly reasoningField: ReasoningField;
  readonly telemetry: Telemetry;
  readonly lifecycle: Lifecycle;
  readonly version: string;
  readonly limits: RespondLimits;
  readonly responses: KeptResponses;
  /** Streams that outlive their connections. */
  readonly streams: KeptStreams;
  /** Null if the server keeps no files and batches. */
  readonly jobs: JobService | null;
}

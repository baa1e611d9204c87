import type { SequenceId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import type { Lifecycle, ServerState } from "./lifecycle.ts";
import type { Telemetry, Work } from "./telemetry.ts";

/** Answer of `GET /state` for every key. */
export interface ServerFacts {
  readonly version: string;
  readonly model: string;
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  readonly status: ServerState;
  /** Milliseconds since the server started. */
  readonly timeMs: number;
}

/**
 * Answer of `GET /state` for a sender who may see all keys' requests: the server's activity at this moment.
 * Its totals only grow, so that two snapshots give rates.
 */
export interface Snapshot extends ServerFacts {
  /** Engines by id. */
  readonly engines: readonly EngineSnapshot[];
  /** The last placements, newest first. */
  readonly placements: readonly PlacementSnapshot[];
  /** Tokens computed for answers that have ended: of requests, and of jobs. */
  readonly computed: Readonly<Record<Work, number>>;
  /** null: this server keeps no files and batches. */
  readonly jobs: JobsSnapshot | null;
}

/** Batches that have not ended. */
export interface JobsSnapshot {
  readonly active: number;
  /** Their lines that are on the engines. */
  readonly linesRunning: number;
}

/** Engine that the fleet chose for a sequence, and the reason. */
export interface PlacementSnapshot {
  /** On the clock of `Snapshot.timeMs`. */
  readonly timeMs: number;
  readonly sequence: SequenceId;
  readonly placement: Placement;
}

export interface EngineSnapshot {
  readonly device: DeviceSpec;
  /** As reported by the engine after its last step. */
  readonly load: EngineLoad;
}

/** Sources of a snapshot. */
export interface SnapshotSources {
  readonly version: string;
  readonly model: { readonly names: readonly string[]; readonly contextMax: number };
  readonly lifecycle: Pick<Lifecycle, "state">;
  readonly specs: readonly DeviceSpec[];
  readonly fleet: Pick<Fleet, "loads">;
  readonly placements: Pick<PlacementLog, "last">;
  readonly telemetry: Pick<Telemetry, "computed">;
  readonly jobs: { readonly runner: JobsSnapshot } | null;
}

export function factsOf({
  version,
  model,
  lifecycle,
}: Pick<SnapshotSources, "version" | "model" | "lifecycle">): ServerFacts {
  return {
    version,
    model: model.names[0]!,
    contextMax: model.contextMax,
    status: lifecycle.state,
    timeMs: performance.now(),
  };
}

export function snapshotOf(sources: SnapshotSources): Snapshot {
  const { specs, fleet, placements, telemetry, jobs } = sources;
  const loads = fleet.loads();
  return {
    ...factsOf(sources),
    engines: specs.map((device, engine) => ({ device, load: loads[engine]! })),
    placements: placements.last(),
    computed: { ...telemetry.computed },
    jobs: jobs === null ? null : { active: jobs.runner.active, linesRunning: jobs.runner.linesRunning },
  };
}

const PLACEMENTS_KEPT = 32;

/** Remembers the last placements. */
export class PlacementLog {
  readonly #last: PlacementSnapshot[] = [];

  note(sequence: SequenceId, placement: Placement): void {
    this.#last.unshift({ timeMs: performance.now(), sequence, placement });
    if (this.#last.length > PLACEMENTS_KEPT) this.#last.pop();
  }

  /** Newest first. */
  last(): readonly PlacementSnapshot[] {
    return this.#last;
  }
}

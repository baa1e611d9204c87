import type { DeviceSpec } from "../scheduler/device.ts";
import type { EngineLoad } from "../scheduler/messages.ts";
import type { ServerState } from "./lifecycle.ts";

/** The answer of `GET /state`: what the server does at this moment, for those who watch. Its totals only grow, so that
 *  two snapshots give rates. */
export interface Snapshot {
  readonly version: string;
  readonly model: string;
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  readonly status: ServerState;
  /** Milliseconds since the server started. */
  readonly timeMs: number;
  /** By engine id. */
  readonly engines: readonly EngineSnapshot[];
}

export interface EngineSnapshot {
  readonly device: DeviceSpec;
  /** As the engine told after its last step. */
  readonly load: EngineLoad;
}

export function engineSnapshots(
  specs: readonly DeviceSpec[],
  loads: readonly EngineLoad[],
): EngineSnapshot[] {
  return specs.map((device, engine) => ({ device, load: loads[engine]! }));
}

import type { LineDoor } from "./door.ts";
import type { InputLimits } from "./input.ts";
import type { JobStore } from "./store.ts";

/** What a job runs with. */
export interface JobParts {
  readonly store: JobStore;
  readonly door: LineDoor;
  readonly limits: InputLimits;
  /** Names that the server answers to; null: to any. */
  readonly models: readonly string[] | null;
  readonly nowSeconds: () => number;
  /** How long results are kept. */
  readonly retentionSeconds: number;
  /** Results are written together that came within this time: a write waits for the disk. */
  readonly commitMs: number;
  /** How long a full disk is left alone before it is tried again, and a full queue before a line is. */
  readonly retryMs: number;
}

import type { Traces } from "../trace/traces.ts";
import type { LineDoor } from "./door.ts";
import type { InputLimits } from "./input.ts";
import type { LineForm } from "./line-form.ts";
import type { PreparedLines } from "./prepared-lines.ts";
import type { BatchEndpoint } from "./records.ts";
import type { JobStore } from "./store.ts";

/** Dependencies of a job. */
export interface JobParts {
  readonly store: JobStore;
  readonly door: LineDoor;
  readonly formOf: (endpoint: BatchEndpoint) => LineForm;
  readonly prepared: PreparedLines;
  readonly limits: InputLimits;
  /** Model names of this server; null to accept any. */
  readonly models: readonly string[] | null;
  readonly nowSeconds: () => number;
  /** null: batches are not traced. */
  readonly traces: Traces | null;
  /** Seconds for which results are kept. */
  readonly retentionSeconds: number;
  /**
   * Milliseconds over which results are collected into one commit, because each commit waits for the disk.
   */
  readonly commitMs: number;
  /** Milliseconds before a write to a full disk, or a line for a full queue, is retried. */
  readonly retryMs: number;
}

import type { Step, StepResult } from "./core.ts";

/** Capacity and capabilities of a device; fixed for its life. */
export interface DeviceSpec {
  /** Name for people: "cpu (AVX-512 BF16, 2 threads)". */
  readonly name: string;
  /** Number of KV pages. */
  readonly pages: number;
  /** Tokens per page. */
  readonly pageTokens: number;
  /** Tokens in one step at most, over all chunks. */
  readonly stepTokensMax: number;
  /** Chunks in one step at most. */
  readonly stepChunksMax: number;
  /** Rows to draw from in one step at most. Absent: as many as chunks. */
  readonly stepDrawsMax?: number;
  /** Longest sequence in tokens, prompt plus output. */
  readonly contextMax: number;
  readonly vocabSize: number;
  /** Size of a hidden state, and how many a step may return. Absent: the device returns none. */
  readonly hidden?: { readonly size: number; readonly rowsMax: number };
  /** Tokens drafted behind a chunk at most, by the model's own head (MTP) or a draft model. Absent: it drafts none. */
  readonly draftsMax?: number;
  /**
   * Draft model, which computes the sequences' tokens too. `share`: its weight bytes over the target model's.
   * Absent: the model's own head drafts.
   */
  readonly draftModel?: { readonly share: number };
  /**
   * Slots for recurrent states, each of `bytes`. Such a device has no abort points, since a step updates states
   * in place and cannot run twice. Absent: the model has no recurrent layers.
   */
  readonly states?: { readonly slots: number; readonly bytes: number };
  /**
   * Number of abort points, spread evenly over an abortable step. Absent: the device computes every step to
   * its end.
   */
  readonly abortPoints?: number;
}

/** Port of a device: executes steps, one at a time, and decides nothing. */
export interface Device {
  readonly spec: DeviceSpec;
  /**
   * Starts one step and returns at once; calls `done` exactly once, later (never from within `start`), on
   * this thread. Starting while a step is in flight, or after `close`, breaks an invariant.
   */
  start(step: Step, done: (result: StepResult) => void): void;
  close(): void;
}

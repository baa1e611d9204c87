import type { Step, StepResult } from "./core.ts";

/** Limits of a device; fixed for its life. */
export interface DeviceSpec {
  /** For people: "cpu (AVX-512 BF16, 2 threads)". */
  readonly name: string;
  /** Number of KV pages. */
  readonly pages: number;
  /** Tokens per page. */
  readonly pageTokens: number;
  /** Most tokens in one step, over all chunks. */
  readonly stepTokensMax: number;
  /** Most chunks in one step. */
  readonly stepChunksMax: number;
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  readonly vocabSize: number;
  /** Length of a hidden state, and most hidden states of a step; absent: the device returns none. */
  readonly hidden?: { readonly size: number; readonly rowsMax: number };
  /** Number of points, spread evenly over its time, in which a step can be aborted; absent: it is always computed to its end. */
  readonly abortPoints?: number;
}

/** Port: executes steps, decides nothing. One step at a time. */
export interface Device {
  readonly spec: DeviceSpec;
  /** Starts one step and returns at once; calls `done` exactly once, later (never from within `start`), on
   *  this thread. Starting while a step is in flight, or after `close`, breaks an invariant. */
  start(step: Step, done: (result: StepResult) => void): void;
  close(): void;
}

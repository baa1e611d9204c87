import type { Step, StepResult } from "./core.ts";

/** What a device can hold and do; fixed for its life. */
export interface DeviceSpec {
  /** For people: "cpu (AVX-512 BF16, 2 threads)". */
  readonly name: string;
  /** KV pages. */
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
  /** Numbers of a hidden state, and how many hidden states a step may want; absent: none can be had. */
  readonly hidden?: { readonly size: number; readonly rowsMax: number };
  /** In so many places, spread evenly over its time, a step that gives way can be given up; absent: it is always computed to its end. */
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

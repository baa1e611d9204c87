import type { EngineHandle } from "../../gpu/native.ts";

/** Settings of the KV tier in host memory, for all engines of a model. */
export interface KvHostSetup {
  /** URL of worker.ts. */
  readonly workerUrl: string;
  /** Places of each engine. */
  readonly places: number;
  readonly pageBytes: number;
  /** Bytes of a recurrent state; 0 if the model has none. */
  readonly stateBytes: number;
  readonly pageTokens: number;
}

/** First message to the thread that waits for copies. */
export interface HostStart {
  readonly setup: KvHostSetup;
  /** Port of `HostTask`s and of their replies. */
  readonly port: MessagePort;
  /** Words shared with side-thread.ts. */
  readonly words: SharedArrayBuffer;
  /** The engine's doorbell, rung for each reply. */
  readonly doorbell: SharedArrayBuffer;
}

export type HostTask =
  /** Sent once: library and handle of the engine whose pages are copied. */
  | { readonly kind: "attach"; readonly library: string; readonly engine: EngineHandle }
  /** Waits until all earlier sends have reached their places. */
  | { readonly kind: "settle"; readonly job: number }
  /** Copies to pages, then to a state slot; null: none. */
  | {
      readonly kind: "fetch";
      readonly job: number;
      readonly pages: Int32Array;
      readonly places: Int32Array;
      readonly slot: number | null;
    };

export interface HostAnswer {
  readonly job: number;
  readonly isRight: boolean;
  readonly tookMs: number;
}

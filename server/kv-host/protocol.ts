import type { EngineHandle } from "../../gpu/native.ts";

/** Settings of the tier in the host's memory for all engines of a model. */
export interface KvHostSetup {
  /** URL of worker.ts. */
  readonly workerUrl: string;
  /** Places of each engine. */
  readonly places: number;
  readonly pageBytes: number;
  /** Size of a recurrent state; 0: the model has none. */
  readonly stateBytes: number;
  readonly pageTokens: number;
}

/** First message to the thread that waits for copies. */
export interface HostStart {
  readonly setup: KvHostSetup;
  /** Port of `HostTask`s and of the answers. */
  readonly port: MessagePort;
  /** Words of side-thread.ts. */
  readonly words: SharedArrayBuffer;
  /** The engine's doorbell, rung for each answer. */
  readonly doorbell: SharedArrayBuffer;
}

export type HostTask =
  /** The engine whose pages are copied. */
  | { readonly kind: "attach"; readonly library: string; readonly engine: EngineHandle }
  /** Waits until what was sent before is in its places. */
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

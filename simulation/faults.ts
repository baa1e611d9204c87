import type { EngineId } from "../scheduler/core.ts";

/** Fault of one engine at a given time. */
export type Fault = { readonly atMs: number; readonly engine: EngineId } & (
  | /** Loss of the engine with everything on it, if it lives. Another replaces it after `backAfterMs`; null: never. */ {
      readonly kind: "lost";
      readonly backAfterMs: number | null;
    }
  /** Slowdown: its steps take `factor` times as long from now on; 1 ends it. */
  | { readonly kind: "slow"; readonly factor: number }
  /** Loss of the KV events of its next `count` reports. */
  | { readonly kind: "dropNotices"; readonly count: number }
);

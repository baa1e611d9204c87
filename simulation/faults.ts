import type { EngineId } from "../scheduler/core.ts";

/** Something that goes wrong with one engine at a given time. */
export type Fault = { readonly atMs: number; readonly engine: EngineId } & (
  | /** Everything on it is lost, if it is not lost already; another takes its place after `backAfterMs`, or never. */ {
      readonly kind: "lost";
      readonly backAfterMs: number | null;
    }
  /** Its steps take `factor` times as long from now on; 1 ends it. */
  | { readonly kind: "slow"; readonly factor: number }
  /** The notices of its next `count` reports do not arrive. */
  | { readonly kind: "dropNotices"; readonly count: number }
);

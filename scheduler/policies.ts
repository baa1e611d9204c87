import { objectives } from "./objective.ts";
import type { ServedPolicy } from "./policy.ts";

/**
 * Bunting's own, as it serves and as it is measured. `tbtMs` is the target of streams that ask for none themselves; null,
 * what serves without `--tbt-ms`: they have none, and steps are of the size with the least total delay. How large steps are and how
 * many sequences run is up to the device: its cost model, its memory, and what it takes in one step.
 */
export function ours(tbtMs: number | null = null): ServedPolicy {
  return {
    name: "ours",
    placement: { kind: "e2" },
    queue: { kind: "lanes", lanes: objectives, tenantSlack: 16_384, tenantReach: 8192 },
    batch: {
      kind: "time",
      tbtMs,
      stepMs: 100,
      margin: 0.02,
      starvationMs: 2000,
      skipsMax: 64,
    },
    admission: {
      sequencesMax: null,
      watermark: 0.01,
    },
  };
}

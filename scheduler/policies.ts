import { objectives } from "./objective.ts";
import type { ServedPolicy } from "./policy.ts";

/**
 * The policy that serves and is measured. `tbtMs`: the default target of streams. Without `--tbt-ms` it is null: they have none, and steps
 * have the size with the least total delay. The size of steps and the number of sequences depend on the device: its cost model, its
 * memory, and its limits of a step.
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

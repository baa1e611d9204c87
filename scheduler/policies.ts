import { objectives } from "./objective.ts";
import type { ServedPolicy } from "./policy.ts";

/**
 * Returns Bunting's own policy, as served and as simulated. `tbtMs` is the TBT target of streams without one.
 * Null (serving without `--tbt-ms`) gives them none: steps then have the size with the least total delay.
 * `drafts`: where drafts come from. The device bounds step size and running sequences, by its cost model, its memory,
 * and its limits per step.
 */
export function ours(
  tbtMs: number | null = null,
  drafts: ServedPolicy["drafts"]["kind"] = "both",
): ServedPolicy {
  return {
    name: "ours",
    placement: { kind: "e2" },
    queue: { kind: "lanes", lanes: objectives, tenantSlack: 16_384, tenantReach: 8192 },
    batch: {
      kind: "time",
      tbtMs,
      stepMs: 100,
      readingMs: 200,
      margin: 0.02,
      starvationMs: 2000,
      skipsMax: 64,
    },
    admission: {
      sequencesMax: null,
      watermark: 0.01,
    },
    drafts: { kind: drafts },
    sessions: { kind: "priced" },
  };
}

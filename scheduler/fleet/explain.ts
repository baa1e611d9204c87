import type { SequenceId } from "../core.ts";
import { type Placement, type PlacementCost, totalMs } from "./placement.ts";

/**
 * A placement in one line, for people and logs: "7 to engine 1, exploit: 0 = 120.5 ms (load 20.0, evict 0.3,
 * …)".
 */
export function explain(id: SequenceId, { engine, reason, costs }: Placement): string {
  const choice = `${id} to engine ${engine}, ${reason}`;
  return costs.length === 0 ? choice : `${choice}: ${costs.map(costLine).join("; ")}`;
}

function costLine(cost: PlacementCost): string {
  const parts = [
    `load ${round(cost.loadMs)}`,
    `evict ${round(cost.evictMs)}`,
    `prompt ${round(cost.promptMs)}`,
    `delay ${round(cost.delayMs)}`,
    `decode ${round(cost.decodeMs)}`,
    ...(cost.harmMs > 0 ? [`harm ${round(cost.harmMs)}`] : []),
  ];
  return `${cost.engine} = ${round(totalMs(cost))} ms (${parts.join(", ")}; ${cost.cachedTokens} tokens cached)`;
}

function round(ms: number): string {
  return ms.toFixed(1);
}

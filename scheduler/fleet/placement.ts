import type { EngineId, SequenceId } from "../core.ts";

/**
 * The reason for which an engine was chosen.
 *
 *   only        it is the only engine there
 *   exploit     more of the prompt is cached there than not, and it is the cheapest that may be chosen
 *   explore     little is cached anywhere: the cheapest of all
 *   spill       cached elsewhere, but waiting there costs more than computing it here
 *   warm        as explore, to an engine that is new or has just come back
 *   redirect    the prefix was moved away from an overloaded engine
 *   replicate   the prefix is given a second engine
 *   balance     the engine with the largest share of decodes takes the prompt (Preble's ImbalR)
 *   move        the sequence waited on an engine that would have begun it later
 *   gang        list scheduling of a task group
 *   continues   it continues a sequence that is held there
 *   turn        round robin
 */
export type PlacementReason =
  | "only"
  | "exploit"
  | "explore"
  | "spill"
  | "warm"
  | "redirect"
  | "replicate"
  | "balance"
  | "move"
  | "gang"
  | "continues"
  | "turn";

/** Predicted cost of a placement on one engine, in milliseconds. All parts are ≥ 0. */
export interface PlacementCost {
  readonly engine: EngineId;
  /** Prompt tokens cached there or on their way, whole pages. */
  readonly cachedTokens: number;
  /** L: work there that comes before or beside it. */
  readonly loadMs: number;
  /**
   * M: recomputation of evicted pages by sequences that come back, and the wait for pages that others hold.
   */
  readonly evictMs: number;
  /** P: prefill of the uncached part, at the pace that is left beside the decodes there. */
  readonly promptMs: number;
  /** Total delay of the other sequences there while its prompt is computed. */
  readonly delayMs: number;
  /** Decoding of the answer, of the length that is expected there. */
  readonly decodeMs: number;
  /** Throughput that an engine full of offline work loses to its first stream with a target. */
  readonly harmMs: number;
}

/** The sum of all parts. */
export function totalMs(cost: PlacementCost): number {
  return cost.loadMs + cost.evictMs + cost.promptMs + cost.delayMs + cost.decodeMs + cost.harmMs;
}

/** The sum of all parts but M, which may be expensive to look up. */
export function floorMs(cost: PlacementCost): number {
  return cost.loadMs + cost.promptMs + cost.delayMs + cost.decodeMs + cost.harmMs;
}

/** The dispatcher's answer, complete enough to be explained. */
export interface Placement {
  readonly engine: EngineId;
  readonly reason: PlacementReason;
  /**
   * Costs by engine: of every engine that may have it, or of the candidates if there are many; empty for
   * policies without costs.
   */
  readonly costs: readonly PlacementCost[];
}

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

import type { EngineId } from "../core.ts";

/**
 * Why an engine was chosen.
 *
 *   only        no other engine is there
 *   exploit     more of the prompt is cached than not, and the cheapest of those that hold most was taken
 *   explore     little is cached anywhere: the cheapest of all
 *   spill       cached, but waiting there costs more than computing it elsewhere
 *   warm        as explore, to an engine that is new or has just come back
 *   redirect    the prefix was moved away from an overloaded engine
 *   replicate   the prefix is given a second engine
 *   balance     the engine with the largest share of decodes takes the prompt (Preble's ImbalR)
 *   move        waited where it would have begun later
 *   task group        list scheduling of sequences that belong together
 *   continues   it goes on from a sequence that is held there
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

/** What a placement on one engine would cost, in predicted milliseconds. All ≥ 0. */
export interface PlacementCost {
  readonly engine: EngineId;
  /** Prompt tokens cached there or on their way, whole pages. */
  readonly cachedTokens: number;
  /** L: work there that comes before or beside it. */
  readonly loadMs: number;
  /** M: what evicting for it will cost sequences that come back, and waiting for pages that others hold. */
  readonly evictMs: number;
  /** P: computing what is not cached, at the pace that is left beside the decodes there. */
  readonly promptMs: number;
  /** What the other sequences there lose together while its prompt is computed. */
  readonly delayMs: number;
  /** Generating the answer, as long as answers are there. */
  readonly decodeMs: number;
  /** What a first stream with a target costs an engine full of throughput work. */
  readonly harmMs: number;
}

/** The sum of all parts. */
export function totalMs(cost: PlacementCost): number {
  return cost.loadMs + cost.evictMs + cost.promptMs + cost.delayMs + cost.decodeMs + cost.harmMs;
}

/** The sum of all parts but M, which may be dear to look up. */
export function floorMs(cost: PlacementCost): number {
  return cost.loadMs + cost.promptMs + cost.delayMs + cost.decodeMs + cost.harmMs;
}

/** The dispatcher's answer, complete enough to be explained. */
export interface Placement {
  readonly engine: EngineId;
  readonly reason: PlacementReason;
  /** By engine: of every engine that may have it, or of those that it was between if there are many; empty for policies
   *  that look at none. */
  readonly costs: readonly PlacementCost[];
}

import type { EngineId } from "../core.ts";
import { type PlacementCost, type PlacementReason, totalMs } from "./placement.ts";

/** What the choice looks at besides the costs. */
export interface E2Situation {
  readonly promptTokens: number;
  /** Whether the engine may have it at all; at least one of the costs' engines may. */
  isOpen(engine: EngineId): boolean;
  /** Whether the engine has computed anything yet. */
  isWarm(engine: EngineId): boolean;
  pagesUsed(engine: EngineId): number;
}

/**
 * The engine that costs least. `costs` is not empty, by engine.
 *
 * Preble's E2 (arXiv:2407.00023 §3.2, algorithm 1) decides first whether to exploit, and then compares costs among the
 * holders of the longest prefix alone. Here the costs decide both: a holder wins as long as waiting there is cheaper than
 * computing the prefix again elsewhere, for the call and for those that it would delay. So affinity never costs more than
 * recomputing, and a hot prefix spreads over as many engines as it needs.
 */
export function chooseE2(
  costs: readonly PlacementCost[],
  situation: E2Situation,
): { readonly engine: EngineId; readonly reason: PlacementReason } {
  const { promptTokens } = situation;
  const open = costs.filter(({ engine }) => situation.isOpen(engine));
  const { engine, cachedTokens } = cheapest(open, situation);
  if (isMostly(cachedTokens, promptTokens)) return { engine, reason: "exploit" };
  if (open.some((cost) => isMostly(cost.cachedTokens, promptTokens))) return { engine, reason: "spill" };
  return { engine, reason: situation.isWarm(engine) ? "explore" : "warm" };
}

/** Whether more of a prompt is cached than must be computed. */
export function isMostly(cachedTokens: number, promptTokens: number): boolean {
  return cachedTokens > promptTokens - cachedTokens;
}

/** The engine with the least sum of costs. Ties: more of it cached, fewer pages in use, the lowest. */
export function cheapest(
  costs: readonly PlacementCost[],
  { pagesUsed }: Pick<E2Situation, "pagesUsed">,
): PlacementCost {
  let chosen = costs[0]!;
  let leastMs = totalMs(chosen);
  for (let i = 1; i < costs.length; i++) {
    const cost = costs[i]!;
    const ms = totalMs(cost);
    const isTie = Math.abs(ms - leastMs) <= 1e-9 * leastMs;
    const isBetter = isTie
      ? cost.cachedTokens > chosen.cachedTokens ||
        (cost.cachedTokens === chosen.cachedTokens && pagesUsed(cost.engine) < pagesUsed(chosen.engine))
      : ms < leastMs;
    if (!isBetter) continue;
    chosen = cost;
    leastMs = ms;
  }
  return chosen;
}

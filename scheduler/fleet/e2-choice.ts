import type { EngineId } from "../core.ts";
import { floorMs, type PlacementCost, type PlacementReason, totalMs } from "./placement.ts";

/** Largest relative difference of costs that count as equal. */
const TIE = 1e-9;

/** State of an engine that the choice uses besides the costs. */
export interface E2Situation {
  readonly promptTokens: number;
  /** True if the engine has computed anything yet. */
  isWarm(engine: EngineId): boolean;
  pagesUsed(engine: EngineId): number;
}

/**
 * Returns the engine that costs least. `costs` is not empty; it is ordered by engine and holds the
 * candidates.
 *
 * Preble's E2 (arXiv:2407.00023 §3.2, algorithm 1) decides first whether to exploit. It then compares costs
 * among the holders of the longest prefix alone. Here the costs decide both. A holder wins as long as waiting
 * there is cheaper than computing the prefix again elsewhere. That cost counts the call and those that it
 * would delay. So affinity never costs more than recomputing, and a hot prefix spreads over as many engines
 * as it needs.
 */
export function chooseE2(
  costs: readonly PlacementCost[],
  situation: E2Situation,
): { readonly engine: EngineId; readonly reason: PlacementReason } {
  const { promptTokens } = situation;
  const { engine, cachedTokens } = cheapest(costs, situation);
  if (isMostly(cachedTokens, promptTokens)) return { engine, reason: "exploit" };
  if (costs.some((cost) => isMostly(cost.cachedTokens, promptTokens))) return { engine, reason: "spill" };
  return { engine, reason: situation.isWarm(engine) ? "explore" : "warm" };
}

/** True if more of a prompt is cached than must be computed. */
export function isMostly(cachedTokens: number, promptTokens: number): boolean {
  return cachedTokens > promptTokens - cachedTokens;
}

/**
 * The engine with the least sum of costs. Ties: more cached tokens, then fewer pages in use, then the lower id. M is
 * read only where the other costs do not exceed the least sum already.
 */
export function cheapest(
  costs: readonly PlacementCost[],
  { pagesUsed }: Pick<E2Situation, "pagesUsed">,
): PlacementCost {
  const floorsMs = new Float64Array(costs.length);
  for (let index = 0; index < costs.length; index++) floorsMs[index] = floorMs(costs[index]!);
  // The cheapest without M come first, so that M is computed for few.
  let next = leastIndex(floorsMs);
  let chosen = costs[next]!;
  let leastMs = totalMs(chosen);
  for (let read = 1; read < costs.length; read++) {
    floorsMs[next] = Number.POSITIVE_INFINITY;
    next = leastIndex(floorsMs);
    if (floorsMs[next]! > leastMs * (1 + TIE)) break;
    const cost = costs[next]!;
    const ms = totalMs(cost);
    if (Math.abs(ms - leastMs) > TIE * leastMs ? ms > leastMs : !isPreferred(cost, chosen, pagesUsed))
      continue;
    chosen = cost;
    leastMs = ms;
  }
  return chosen;
}

function leastIndex(values: Float64Array): number {
  let least = 0;
  for (let index = 1; index < values.length; index++) if (values[index]! < values[least]!) least = index;
  return least;
}

/** True if engine a is preferred to engine b, whose cost is equal. */
function isPreferred(a: PlacementCost, b: PlacementCost, pagesUsed: E2Situation["pagesUsed"]): boolean {
  if (a.cachedTokens !== b.cachedTokens) return a.cachedTokens > b.cachedTokens;
  const [usedA, usedB] = [pagesUsed(a.engine), pagesUsed(b.engine)];
  return usedA === usedB ? a.engine < b.engine : usedA < usedB;
}

/**
 * The order in which a task group's members are placed: the most work first, ties by arrival. As each is
 * placed where it ends first, given those before it, this is list scheduling: the task group's last answer
 * comes at most 4/3 as late as it could at best (Graham, 1969), as far as the costs are right. A shared
 * prefix is paid for once per engine, because it counts as there from the first member on.
 */
export function taskGroupOrder(workMs: readonly number[]): number[] {
  return workMs.map((_, index) => index).sort((a, b) => workMs[b]! - workMs[a]! || a - b);
}

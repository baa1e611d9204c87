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
  /** How long the engine's last step took. */
  stepMs(engine: EngineId): number;
  /** Milliseconds that all sequences of the engine lose together when the first `tokens` of a prompt are computed
   *  there. */
  delayMs(engine: EngineId, tokens: number): number;
}

/**
 * E2 (Preble, arXiv:2407.00023 §3.2, algorithm 1): where more of the prompt is cached than must be computed, exploit
 * the cheapest of those that have the most; else explore the cheapest of all. Ours: affinity never costs more than
 * recomputing, see `worthwhile`. `costs` is not empty, by engine.
 */
export function chooseE2(
  costs: readonly PlacementCost[],
  situation: E2Situation,
): { readonly engine: EngineId; readonly reason: PlacementReason } {
  const { promptTokens } = situation;
  const open = costs.filter(({ engine }) => situation.isOpen(engine));
  const best = open.reduce((most, cost) => Math.max(most, cost.cachedTokens), 0);
  if (best > promptTokens - best) {
    const holders = open.filter((cost) => cost.cachedTokens === best);
    const kept = worthwhile(holders, open, best, situation);
    if (kept.length > 0) return { engine: cheapest(kept, situation).engine, reason: "exploit" };
    return { engine: cheapest(open, situation).engine, reason: "spill" };
  }
  const { engine } = least(open, (cost) => totalMs(cost) + cost.followMs, situation);
  return { engine, reason: situation.isWarm(engine) ? "explore" : "warm" };
}

/** The engine with the least sum of costs. Ties: more of it cached, fewer pages in use, the lowest. */
export function cheapest(
  costs: readonly PlacementCost[],
  situation: Pick<E2Situation, "pagesUsed">,
): PlacementCost {
  return least(costs, totalMs, situation);
}

function least(
  costs: readonly PlacementCost[],
  valueIn: (cost: PlacementCost) => number,
  { pagesUsed }: Pick<E2Situation, "pagesUsed">,
): PlacementCost {
  let chosen = costs[0]!;
  let leastMs = valueIn(chosen);
  for (let i = 1; i < costs.length; i++) {
    const cost = costs[i]!;
    const ms = valueIn(cost);
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

/** The holders where waiting costs no more than on the cheapest engine, a step, and what computing the prefix there
 *  again would cost everybody on it: affinity is never dearer than recomputing. */
function worthwhile(
  holders: readonly PlacementCost[],
  open: readonly PlacementCost[],
  cachedTokens: number,
  situation: E2Situation,
): readonly PlacementCost[] {
  const other = cheapest(open, situation);
  const limitMs = totalMs(other) + situation.delayMs(other.engine, cachedTokens);
  return holders.filter((cost) => totalMs(cost) <= limitMs + situation.stepMs(cost.engine));
}

import type { EngineId, SequenceId } from "../core.ts";
import { type PlacementCost, totalMs } from "./placement.ts";

/** A move must save so much: predictions err, and each move costs a message there and back. */
const GAIN_MS = 250;
/** Sequences of one engine that are looked at each time. */
const LOOK = 8;

/** An engine where sequences wait. */
export interface Crowd {
  readonly engine: EngineId;
  /** Milliseconds of all work there. */
  readonly workMs: number;
  /** Those that have not begun, in the order in which they were placed. */
  readonly waiting: readonly SequenceId[];
}

/** What moving is weighed by. */
export interface MoveView {
  /** What a waiting sequence would cost on each engine. Where it is, its own work is among that which is there. */
  costs(id: SequenceId): readonly PlacementCost[];
  /** What all sequences of an engine lose together when so many tokens of a prompt are computed there. */
  delayMs(engine: EngineId, tokens: number): number;
}

/**
 * Sequences that should begin elsewhere. A placement is a prediction, and may turn out wrong afterwards: an engine has
 * become slow, others have ended early, one has come back. Whoever has begun stays; of those that wait the youngest
 * go, as they would wait longest, as long as that saves each of them time, what must be computed again included.
 */
export function surplus(crowds: readonly Crowd[], view: MoveView): SequenceId[] {
  const leastMs = Math.min(...crowds.map(({ workMs }) => workMs));
  const moved: SequenceId[] = [];
  /** By engine, what the moves so far add and take away. */
  const changeMs = new Map<EngineId, number>();
  const changed = ({ engine }: PlacementCost): number => changeMs.get(engine) ?? 0;
  for (const { engine, workMs, waiting } of crowds) {
    if (workMs - leastMs < GAIN_MS) continue;
    for (let i = waiting.length - 1; i >= Math.max(0, waiting.length - LOOK); i--) {
      const costs = view.costs(waiting[i]!);
      const here = costs.find((cost) => cost.engine === engine);
      if (here === undefined) continue;
      const goesMs = (cost: PlacementCost): number => {
        const again = Math.max(0, here.cachedTokens - cost.cachedTokens);
        return totalMs(cost) + changed(cost) + view.delayMs(cost.engine, again);
      };
      let best = here;
      let bestMs = totalMs(here) + changed(here) - GAIN_MS;
      for (const cost of costs) {
        if (cost.engine === engine || goesMs(cost) >= bestMs) continue;
        best = cost;
        bestMs = goesMs(cost);
      }
      if (best === here) continue;
      moved.push(waiting[i]!);
      changeMs.set(best.engine, changed(best) + best.promptMs);
      changeMs.set(engine, changed(here) - best.promptMs);
    }
  }
  return moved;
}

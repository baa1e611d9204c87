import type { EngineId, SequenceId } from "../core.ts";
import { floorMs, type PlacementCost, totalMs } from "./placement.ts";

/** Time that a move must save: predictions err, and each move costs a message there and back. */
const GAIN_MS = 250;
/** Waiting sequences of one engine that a call considers at most. */
const CONSIDERED_MAX = 8;

/** An engine where sequences wait. */
export interface Crowd {
  readonly engine: EngineId;
  /** Milliseconds of all work there. */
  readonly workMs: number;
  /** Waiting sequences, in the order of their placement. */
  readonly waiting: readonly SequenceId[];
}

/**
 * Finds waiting sequences to migrate. A placement is a prediction, and may turn out wrong: an engine has become slow,
 * others have ended early, one has come back. Running sequences stay. Of the waiting ones the youngest move first,
 * as they would wait longest, as long as that saves each of them time, recomputation included.
 *
 * `costsOf`: costs of a waiting sequence on each engine. On its own engine, its work is part of the load.
 */
export function surplus(
  crowds: readonly Crowd[],
  costsOf: (id: SequenceId) => readonly PlacementCost[],
): SequenceId[] {
  const leastMs = Math.min(...crowds.map(({ workMs }) => workMs));
  const moved: SequenceId[] = [];
  /** Work that the moves so far add or remove, by engine. */
  const changeMs = new Map<EngineId, number>();
  const changed = ({ engine }: PlacementCost): number => changeMs.get(engine) ?? 0;
  for (const { engine, workMs, waiting } of crowds) {
    if (workMs - leastMs < GAIN_MS) continue;
    for (let i = waiting.length - 1; i >= Math.max(0, waiting.length - CONSIDERED_MAX); i--) {
      const costs = costsOf(waiting[i]!);
      const here = costs.find((cost) => cost.engine === engine);
      if (here === undefined) continue;
      const goesMs = (cost: PlacementCost): number => totalMs(cost) + changed(cost);
      let best = here;
      let bestMs = goesMs(here) - GAIN_MS;
      for (const cost of costs) {
        // M is computed only if the other costs do not exceed the best sum already.
        if (cost.engine === engine || floorMs(cost) + changed(cost) >= bestMs || goesMs(cost) >= bestMs)
          continue;
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

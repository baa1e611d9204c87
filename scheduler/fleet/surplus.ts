import type { EngineId, SequenceId } from "../core.ts";
import { floorMs, type PlacementCost, totalMs } from "./placement.ts";

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

/**
 * Sequences that should begin elsewhere. A placement is a prediction, and may turn out wrong afterwards: an engine has
 * become slow, others have ended early, one has come back. Sequences that have begun stay; of those that wait the youngest
 * go, as they would wait longest, as long as that saves each of them time, what must be computed again included.
 *
 * `costsOf`: what a waiting sequence would cost on each engine. Where it is, its own work is among that which is there.
 */
export function surplus(
  crowds: readonly Crowd[],
  costsOf: (id: SequenceId) => readonly PlacementCost[],
): SequenceId[] {
  const leastMs = Math.min(...crowds.map(({ workMs }) => workMs));
  const moved: SequenceId[] = [];
  /** By engine, what the moves so far add and take away. */
  const changeMs = new Map<EngineId, number>();
  const changed = ({ engine }: PlacementCost): number => changeMs.get(engine) ?? 0;
  for (const { engine, workMs, waiting } of crowds) {
    if (workMs - leastMs < GAIN_MS) continue;
    for (let i = waiting.length - 1; i >= Math.max(0, waiting.length - LOOK); i--) {
      const costs = costsOf(waiting[i]!);
      const here = costs.find((cost) => cost.engine === engine);
      if (here === undefined) continue;
      const goesMs = (cost: PlacementCost): number => totalMs(cost) + changed(cost);
      let best = here;
      let bestMs = goesMs(here) - GAIN_MS;
      for (const cost of costs) {
        // Where it is dearer without M already, M is not read.
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

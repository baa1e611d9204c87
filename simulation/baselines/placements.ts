import type { EngineId, SequenceId } from "../../scheduler/core.ts";
import type { PlacementRule } from "../../scheduler/fleet/placement-rule.ts";
import type { PlacementBaseline } from "../../scheduler/policy.ts";

/** Places a sequence on the engine with the fewest unended sequences; ties to the lowest engine. */
export const shortestQueue: PlacementBaseline = {
  kind: "baseline",
  readsKvEvents: false,
  open(engines): PlacementRule {
    const counts = engines.map(() => 0);
    const placed = new Map<SequenceId, EngineId>();
    return {
      place: ({ id }, there) => {
        let engine = there[0]!;
        for (const other of there) if (counts[other]! < counts[engine]!) engine = other;
        counts[engine]! += 1;
        placed.set(id, engine);
        return { engine, reason: "explore", costs: [] };
      },
      ended: (id) => {
        counts[placed.get(id)!]! -= 1;
        placed.delete(id);
      },
    };
  },
};

/** Places sequences on the engines in turn. */
export const roundRobin: PlacementBaseline = {
  kind: "baseline",
  readsKvEvents: false,
  open(): PlacementRule {
    let next = 0;
    return {
      place: (_spec, there) => {
        const engine = there.find((other) => other >= next) ?? there[0]!;
        next = engine + 1;
        return { engine, reason: "turn", costs: [] };
      },
    };
  },
};

import type { PlacementRule } from "../../scheduler/fleet/placement-rule.ts";
import type { PlacementBaseline } from "../../scheduler/policy.ts";

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

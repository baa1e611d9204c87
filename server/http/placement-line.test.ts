/** Cost of one engine in a placement. */

import { expect, test } from "bun:test";
import type { EngineId } from "../../scheduler/core.ts";
import type { PlacementCost } from "../../scheduler/fleet/placement.ts";
import { placementLine } from "../web/placement-line.ts";

function cost(engine: number, loadMs: number, cachedTokens = 0): PlacementCost {
  const rest = { evictMs: 0, promptMs: 20.4, delayMs: 0, decodeMs: 0, harmMs: 0 };
  return { engine: engine as EngineId, cachedTokens, loadMs, ...rest };
}

test("reason, what is cached there, what it costs there and at the best of the others", () => {
  const costs = [cost(0, 100, 3072), cost(1, 5000), cost(2, 320)];
  expect(placementLine({ engine: 0 as EngineId, reason: "exploit", costs })).toBe(
    "exploit, 3,072 tokens cached: 120 ms, else 340 ms",
  );
  expect(placementLine({ engine: 1 as EngineId, reason: "warm", costs })).toBe("warm: 5,020 ms, else 120 ms");
  expect(placementLine({ engine: 0 as EngineId, reason: "turn", costs: [] })).toBe("turn");
});

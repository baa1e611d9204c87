import { expect, test } from "bun:test";
import type { EngineId } from "../../scheduler/core.ts";
import { Fleet } from "../../scheduler/fleet/fleet.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";
import { deviceSpec } from "../../scheduler/sim/factories.ts";
import { LifetimeLoads } from "./lifetime-loads.ts";

const idle = new Fleet([{ link: { send: () => {} }, spec: deviceSpec() }]).loads()[0]!;

function load(stepsTotal: number, running: number): EngineLoad {
  return { ...idle, stepsTotal, running };
}

test("the totals of a replaced engine go on, its state does not", () => {
  let current: readonly EngineLoad[] = [load(10, 3), load(20, 4)];
  const lifetime = new LifetimeLoads(() => current);
  expect(lifetime.loads()).toEqual(current);

  lifetime.replaced(1 as EngineId);
  current = [load(11, 3), load(0, 0)];
  expect(lifetime.loads()).toEqual([load(11, 3), load(20, 0)]);
  current = [load(12, 3), load(5, 1)];
  lifetime.replaced(1 as EngineId);
  current = [load(12, 3), load(1, 2)];
  expect(lifetime.loads()).toEqual([load(12, 3), load(26, 2)]);
});

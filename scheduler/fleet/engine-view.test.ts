/** Speed of an engine's prompts while it keeps to a target. */

import { expect, test } from "bun:test";
import { deviceSpec } from "../../simulation/factories.ts";
import { linearCost } from "../cost/linear.ts";
import { ours } from "../policies.ts";
import { EngineView } from "./engine-view.ts";

/** 20 ms a step and 0.1 ms a token, times `factor`; the target is 100 ms. */
function viewOf(factor: number, tbtMs: number | null = 100): EngineView {
  return new EngineView(deviceSpec(), linearCost(20 * factor, 0.1 * factor, 16), ours(tbtMs).batch, 1000);
}

test("prompts alone, and prompts without a target, take their own time", () => {
  expect(viewOf(1).stretch(0, 500)).toBe(1);
  expect(viewOf(1, null).stretch(30, 500)).toBe(1);
});

test("beside decodes with a target they take longer, the more of them the longer", () => {
  const one = viewOf(1);
  const stretches = [1, 20, 200, 600].map((decodes) => one.stretch(decodes, 500));
  expect(stretches).toEqual([...stretches].sort((a, b) => a - b));
  expect(stretches[0]).toBeGreaterThan(1);
  expect(stretches[0]).toBeLessThan(1.5);
});

test("on an engine that cannot meet the target beside any prompt they hardly progress", () => {
  // A tile of 16 tokens every two seconds, instead of 0.5 ms a token.
  expect(viewOf(5).stretch(1, 500)).toBeGreaterThan(100);
});

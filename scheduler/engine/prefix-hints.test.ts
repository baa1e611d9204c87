/**
 * Prefix hints in an engine: computed ahead when nothing else wants the time, kept while there is room, given
 * up when asked.
 */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, FIRST_HINT } from "../../tests/support/engine-harness.ts";
import { chatService } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import { linearCost } from "../cost/linear.ts";
import { ours } from "../policies.ts";
import { prefetchTokens } from "./step/prefetch-budget.ts";

/** Sixteen tokens are computed while weights are read. */
const cost = linearCost(6, 0.02, 1, undefined, [{ tokens: 16, tokenMs: 0.001 }]);

function harness(pages = 64): EngineHarness {
  return new EngineHarness({ spec: { pages }, engine: { batch: ours().batch }, isStallFree: false, cost });
}

/** Tokens of prefix hints that each step computed. */
function warmedBy({ steps }: EngineHarness): number[] {
  return steps.map(({ chunks }) =>
    chunks.reduce((sum, { sequence, tokens }) => sum + (sequence >= FIRST_HINT ? tokens.length : 0), 0),
  );
}

const head = tokensFrom(0, 200);

test("an idle engine computes a prefix hint, and the sequence that comes finds all of it", () => {
  const engine = harness();
  engine.expect(0, head);
  engine.finish();
  expect(warmedBy(engine).reduce((a, b) => a + b)).toBe(200);
  const told = engine.reports.flatMap(({ warmed }) => warmed);
  expect(told.reduce((sum, { tokens }) => sum + tokens, 0)).toBe(200);
  engine.submit(sequenceSpec([...head, 700, 701], 2));
  engine.forget(0);
  engine.finish();
  expect(engine.outcomes[0]).toMatchObject({ cachedTokens: 200, finish: { kind: "length" } });
});

test("after a sequence ends an idle engine delays prefix hints briefly, for its next turn", () => {
  const engine = harness();
  engine.submit(sequenceSpec(tokensFrom(500, 8), 1));
  engine.expect(0, head);
  engine.step();
  expect(engine.outcomes[0]!.finish).toEqual({ kind: "length" });
  const { wakeMs } = engine.engine;
  expect(wakeMs).toBeGreaterThan(engine.clock.nowMs());
  engine.submit(sequenceSpec(tokensFrom(700, 8), 1));
  engine.step();
  expect(warmedBy(engine)).toEqual([0, 0]);
  expect(engine.engine.wakeMs).toBeGreaterThan(wakeMs!);
  engine.finish();
  expect(warmedBy(engine).reduce((a, b) => a + b)).toBe(200);
});

test("an extended prefix hint is computed from where it was", () => {
  const engine = harness();
  engine.expect(0, head.slice(0, 50));
  engine.finish();
  engine.expect(0, head);
  engine.finish();
  expect(warmedBy(engine).reduce((a, b) => a + b)).toBe(200);
});

test("beside streams of other programs no prefix hint lengthens a step", () => {
  const engine = harness();
  engine.submit(sequenceSpec(tokensFrom(500, 8), 5));
  engine.expect(0, head);
  for (let step = 0; step < 5; step++) engine.step();
  expect(engine.outcomes[0]!.tokens).toHaveLength(5);
  expect(warmedBy(engine).slice(0, 5)).toEqual([0, 0, 0, 0, 0]);
});

test("a prefix hint runs beside decodes of its own program, but never while a prompt waits or is unfinished", () => {
  const engine = harness();
  const service = { ...chatService, program: { id: 3, ageMs: 0, remainingMs: 1 } };
  engine.submit(sequenceSpec(tokensFrom(500, 8), 5, { service }));
  engine.expect(0, head, { program: 3 });
  engine.step();
  engine.step();
  expect(warmedBy(engine)[0]).toBe(0);
  expect(warmedBy(engine)[1]!).toBeGreaterThan(0);
  engine.submit(sequenceSpec(tokensFrom(300, 100), 1));
  engine.step();
  engine.step();
  const withPrompt = engine.steps.find(({ chunks }) => chunks.some(({ sequence }) => sequence === 1))!;
  expect(withPrompt.chunks.every(({ sequence }) => sequence < FIRST_HINT)).toBe(true);
});

test("a prefix hint whose rest is too small for a chunk does not block other hints", () => {
  const engine = harness();
  const service = { ...chatService, program: { id: 3, ageMs: 0, remainingMs: 1 } };
  engine.submit(sequenceSpec(tokensFrom(500, 8), 9, { service }));
  engine.expect(0, tokensFrom(0, 31), { program: 3 });
  engine.expect(1, tokensFrom(700, 60), { program: 3 });
  for (let step = 0; step < 8; step++) engine.step();
  expect(warmedBy(engine).slice(0, 8)).toEqual([0, 15, 15, 15, 15, 15, 15, 0]);
});

test("beside a decode of its own program a chunk has the size of least time per token", () => {
  // Up to 64 tokens a step takes as long as it takes to read the weights, more take 0.1 ms each.
  const costs: CostModel = {
    name: "flat to 64",
    tileTokens: 16,
    stepMs: ({ prompts, decodes }) =>
      10 + 0.1 * Math.max(0, prompts.reduce((sum, { tokens }) => sum + tokens, decodes) - 64),
  };
  const own = {
    shape: { prompts: [], decodes: 1, decodeContext: 500 },
    isOwn: true,
    steps: 1000,
    tokensMax: 1000,
  };
  expect(prefetchTokens(costs, { ...own, left: 600, context: 0 })).toBe(63);
  expect(prefetchTokens(costs, { ...own, left: 90, context: 0 })).toBe(63);
  expect(prefetchTokens(costs, { ...own, left: 40, context: 0 })).toBe(40);
  const eight = { prompts: [], decodes: 8, decodeContext: 500 };
  expect(prefetchTokens(costs, { ...own, shape: eight, left: 600, context: 0 })).toBe(56);
  // A device that computes eight tokens while it reads its weights has seven beside a decode for nearly
  // nothing.
  const few = linearCost(18, 0.7, 16, undefined, [{ tokens: 8, tokenMs: 0.1 }]);
  expect(prefetchTokens(few, { ...own, left: 600, context: 0 })).toBe(7);
  // With fewer steps to come than pieces of the size whose tokens cost least, a larger one gains more.
  const bends = linearCost(13, 0.8, 16, undefined, [
    { tokens: 8, tokenMs: 0.2 },
    { tokens: 16, tokenMs: 0.4 },
  ]);
  expect(prefetchTokens(bends, { ...own, left: 350, context: 0 })).toBe(7);
  expect(prefetchTokens(bends, { ...own, steps: 24, left: 350, context: 0 })).toBe(15);
  expect(prefetchTokens(bends, { ...own, steps: 24, left: 100, context: 0 })).toBe(7);
  // On a tiny model they gain less than the piece costs besides: 7 · 0.009 ms.
  const tiny = linearCost(0.4, 0.01, 16, undefined, [{ tokens: 8, tokenMs: 0.001 }]);
  expect(prefetchTokens(tiny, { ...own, left: 600, context: 0 })).toBe(0);
  // If they cost nearly as much as in a prompt, the gain is below the error of predictions.
  const flat = linearCost(5, 0.7, 16, undefined, [{ tokens: 8, tokenMs: 0.6 }]);
  expect(prefetchTokens(flat, { ...own, left: 600, context: 0 })).toBe(0);
  // A token that costs more beside a decode than in a prompt of its own brings no gain.
  const alone: CostModel = {
    name: "dear beside decodes",
    tileTokens: 16,
    stepMs: (shape) => costs.stepMs(shape) + (shape.decodes > 0 && shape.prompts.length > 0 ? 9 : 0),
  };
  expect(prefetchTokens(alone, { ...own, left: 600, context: 0 })).toBe(0);
});

test("between steps a prefix hint holds nothing: a sequence that needs its pages gets them all", () => {
  const engine = harness(16);
  engine.expect(0, tokensFrom(0, 160));
  engine.finish();
  expect(engine.load.pagesCached + engine.load.pagesFree).toBe(16);
  engine.submit(sequenceSpec(tokensFrom(500, 250), 1));
  engine.finish();
  expect(engine.outcomes[0]!.finish).toEqual({ kind: "length" });
});

test("what a prefix hint reads is evicted after what nobody waits for; given up, before", () => {
  const cachedAfter = (act: (engine: EngineHarness) => void): (number | null)[] => {
    const engine = harness(16);
    engine.expect(0, head.slice(0, 64));
    engine.finish();
    engine.submit(sequenceSpec(tokensFrom(300, 63), 1));
    engine.finish();
    act(engine);
    engine.submit(sequenceSpec(tokensFrom(500, 175), 1)); // takes 11 of 16 pages, 8 of which are cached
    engine.finish();
    engine.submit(sequenceSpec([...head.slice(0, 64), 900], 1));
    engine.submit(sequenceSpec([...tokensFrom(300, 63), 900], 1));
    engine.engine.run();
    engine.finish();
    return engine.outcomes.slice(2).map(({ cachedTokens }) => cachedTokens);
  };
  const [kept, others] = cachedAfter(() => {});
  expect([kept, others! < 63]).toEqual([64, true]);
  const [givenUp, kin] = cachedAfter((engine) => engine.forget(0, true));
  expect([givenUp! < 64, kin]).toEqual([true, 63]);
});

test("what can never run is not kept, and forgetting what is not known does nothing", () => {
  const engine = harness(8);
  engine.expect(0, tokensFrom(0, 128));
  engine.expect(1, []);
  engine.expect(2, [5, 100_000]);
  engine.forget(7);
  engine.finish();
  expect(engine.steps).toEqual([]);
});

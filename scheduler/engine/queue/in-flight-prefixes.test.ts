/** Sequences that share a prefix compute it once, and nobody waits in vain. */

import { expect, test } from "bun:test";
import { staticBudget } from "../../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../../tests/support/engine-harness.ts";
import type { SequenceId, Step, StepResult } from "../../core.ts";

const computedTokens = (harness: EngineHarness): number =>
  harness.steps.flatMap((step) => step.chunks).reduce((sum, chunk) => sum + chunk.tokens.length, 0);

const waits = (harness: EngineHarness): number =>
  harness.traces.flatMap((step) => step.notes).filter((note) => note.kind === "waits").length;

test("equal prompts submitted at once compute the prefix once", () => {
  const count = 8;
  const prompt = tokensFrom(0, 300);
  const harness = new EngineHarness({
    spec: { pages: 200 },
    engine: { batch: staticBudget(128), sharedTokensMin: 16 },
  });
  for (let i = 0; i < count; i++) {
    harness.submit(sequenceSpec(prompt, 4, { sampling: { temperature: 1, seed: [i, 0] } }));
  }
  harness.finish();
  // The others compute the tokens after the last whole page, 300 - 288, and all decode 3 tokens.
  expect(computedTokens(harness)).toBe(300 + (count - 1) * 12 + count * 3);
  harness.outcomes.forEach((outcome, i) => {
    const alone = tokensAlone(sequenceSpec(prompt, 4, { sampling: { temperature: 1, seed: [i, 0] } }));
    expect(outcome.tokens).toEqual(alone.tokens);
    expect(outcome.cachedTokens).toBe(i === 0 ? 0 : 288);
  });
});

test("a waiter that shares only a beginning continues as soon as that is computed", () => {
  const harness = new EngineHarness({ spec: { pages: 200 }, engine: { batch: staticBudget(64) } });
  harness.submit(sequenceSpec(tokensFrom(0, 640), 1));
  harness.step();
  harness.submit(sequenceSpec([...tokensFrom(0, 192), ...tokensFrom(500, 40)], 1));
  harness.step();
  expect(harness.outcomes[1]!.cachedTokens).toBeNull();
  harness.step();
  // Admitted to the step that begins now, of which the older prompt has the whole budget.
  expect(harness.outcomes[1]!.cachedTokens).toBe(192);
  harness.finish();
  expect(harness.outcomes[1]!.tokens).toHaveLength(1);
});

test("a small common beginning is computed again rather than waited for", () => {
  const harness = new EngineHarness({ engine: { batch: staticBudget(256), sharedTokensMin: 50 } });
  // Three pages and a bit in common, the bit does not count: only whole pages can be shared in time.
  harness.submit(sequenceSpec([...tokensFrom(0, 63), ...tokensFrom(300, 40)], 1));
  harness.submit(sequenceSpec([...tokensFrom(0, 63), ...tokensFrom(400, 40)], 1));
  harness.finish();
  expect(waits(harness)).toBe(0);
  expect(harness.load.stepsTotal).toBe(1);
});

test("different salts share nothing and wait for nothing", () => {
  const harness = new EngineHarness({ engine: { batch: staticBudget(512) } });
  harness.submit(sequenceSpec(tokensFrom(0, 200), 1, { cacheSalt: "a" }));
  harness.submit(sequenceSpec(tokensFrom(0, 200), 1, { cacheSalt: "b" }));
  harness.finish();
  harness.submit(sequenceSpec(tokensFrom(0, 200), 1, { cacheSalt: "c" }));
  harness.finish();
  expect(waits(harness)).toBe(0);
  expect(computedTokens(harness)).toBe(600);
  expect(harness.outcomes.map((outcome) => outcome.cachedTokens)).toEqual([0, 0, 0]);
});

test("when the owner is aborted, its waiters continue from what it has computed", () => {
  // A sequence that ends leaves its last page too, one that is paused keeps it.
  for (const [message, cachedTokens] of [
    ["abort", 299],
    ["pause", 288],
  ] as const) {
    const harness = new EngineHarness({ spec: { pages: 200 }, engine: { batch: staticBudget(512) } });
    const prompt = tokensFrom(0, 300);
    const owner = harness.submit(sequenceSpec(prompt, 2));
    for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(prompt, 2));
    harness.engine.run();
    harness.send(message, owner);
    harness.finish();
    expect(waits(harness)).toBe(3);
    harness.outcomes.slice(1).forEach((outcome) => {
      expect(outcome).toEqual({ ...tokensAlone(sequenceSpec(prompt, 2)), cachedTokens });
    });
  }
});

test("when the owner fails, the first of its waiters computes for the others", () => {
  const fault = (step: Step): StepResult | null => {
    if (step.number !== 1) return null;
    const sampled = [{ kind: "failed", sequence: 0 as SequenceId, reason: "logits not finite" } as const];
    return { kind: "done", sampled, deviceMs: 1 };
  };
  const harness = new EngineHarness({ fault, engine: { batch: staticBudget(512) } });
  const prompt = tokensFrom(0, 300);
  for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(prompt, 2));
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.cachedTokens)).toEqual([0, 0, 288]);
  expect(harness.outcomes[2]!.tokens).toEqual(tokensAlone(sequenceSpec(prompt, 2)).tokens);
});

test("a page is shared as soon as it is computed, also by a chunk of one token", () => {
  const harness = new EngineHarness({ engine: { batch: staticBudget(15), admission: { sequencesMax: 2 } } });
  harness.submit(sequenceSpec(tokensFrom(0, 16), 50));
  harness.step();
  harness.step();
  harness.submit(sequenceSpec(tokensFrom(0, 30), 1));
  harness.finish();
  expect(harness.outcomes[1]!.cachedTokens).toBe(16);
});

test("a waiter that is aborted or paused no longer waits for the prefix", () => {
  const harness = new EngineHarness();
  const prompt = tokensFrom(0, 200);
  harness.submit(sequenceSpec(prompt, 2));
  const second = harness.submit(sequenceSpec(prompt, 2));
  const third = harness.submit(sequenceSpec(prompt, 2));
  harness.engine.run();
  harness.send("abort", second);
  harness.send("pause", third);
  harness.finish();
  expect(waits(harness)).toBe(2);
  expect(harness.outcomes.map((outcome) => outcome.finish?.kind)).toEqual(["length", "aborted", undefined]);
  harness.send("resume", third);
  harness.finish();
  expect(harness.outcomes[2]!.finish).toEqual({ kind: "length" });
});

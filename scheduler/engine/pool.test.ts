/** Sequences that draw nothing: what they end with, and that it does not depend on how they were computed. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Pooling } from "../../base/token.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";

const hidden = { size: 8, rowsMax: 2048 };
const pooled = (tokens: readonly number[], pooling: Pooling) => sequenceSpec(tokens, 1, { pooling });

/** Pooled output of a device that computes no other sequence. */
function aloneOf(tokens: readonly number[], pooling: Pooling): Float32Array {
  const { finish, tokens: drawn } = tokensAlone(pooled(tokens, pooling), { hidden });
  expect(drawn).toEqual([]);
  if (finish?.kind !== "pooled") throw new Error(JSON.stringify(finish));
  return finish.hidden;
}

/** Hidden state of a token as the pooled output of its prefix: the last state of the text up to it. */
function stateOf(tokens: readonly number[], position: number): Float32Array {
  return aloneOf(tokens.slice(0, position + 1), "last");
}

test("the mean is that of all hidden states, first and last are those of one token", () => {
  const tokens = tokensFrom(0, 40);
  const states = tokens.map((_, position) => stateOf(tokens, position));
  const mean = Float32Array.from({ length: hidden.size }, (_, i) => {
    return states.reduce((sum, state) => sum + state[i]!, 0) / states.length;
  });
  expect(aloneOf(tokens, "mean")).toEqual(mean);
  expect(aloneOf(tokens, "first")).toEqual(states[0]!);
  expect(new Set(states.map(String)).size).toBe(40);
});

test("last pooling may reuse all cached tokens but the last; mean and first reuse none", () => {
  const harness = new EngineHarness({ spec: { hidden } });
  const tokens = tokensFrom(0, 40);
  for (const pooling of ["last", "last", "mean", "first"] as const) {
    harness.submit(pooled(tokens, pooling));
    harness.finish();
  }
  harness.submit(sequenceSpec(tokens, 1));
  harness.finish();
  expect(harness.outcomes.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 39, 0, 0, 39]);
});

test("a text that fills all pages is pooled, as no token is drawn after it", () => {
  const harness = new EngineHarness({ spec: { hidden, pages: 4 } });
  harness.submit(pooled(tokensFrom(0, 64), "mean"));
  harness.submit(pooled(tokensFrom(0, 65), "mean"));
  harness.finish();
  expect(harness.outcomes.map(({ finish }) => finish)).toEqual([
    { kind: "pooled", hidden: aloneOf(tokensFrom(0, 64), "mean") },
    { kind: "rejected", reason: "neverFits", needed: 65, limit: 64 },
  ]);
});

test("an engine without enough hidden states rejects a pooled sequence with its reason", () => {
  const none = new EngineHarness();
  none.submit(pooled([1, 2], "last"));
  const few = new EngineHarness({ spec: { hidden: { size: 8, rowsMax: 256 } } });
  for (const pooling of ["mean", "last"] as const) few.submit(pooled([1, 2], pooling));
  for (const harness of [none, few]) harness.finish();
  expect([...none.outcomes, ...few.outcomes].map(({ finish }) => finish)).toEqual([
    { kind: "failed", reason: "This engine returns no hidden states." },
    {
      kind: "failed",
      reason: "Mean pooling needs up to 2048 hidden states per step; this engine returns at most 256.",
    },
    { kind: "pooled", hidden: aloneOf([1, 2], "last") },
  ]);
});

const text = fc.record({
  tokens: fc
    .tuple(fc.constantFrom(0, 7), fc.integer({ min: 1, max: 60 }))
    .map(([first, n]) => tokensFrom(first, n)),
  pooling: fc.constantFrom<Pooling | null>("mean", "last", "first", null),
  stepsBefore: fc.nat(3),
});

test("chunking, other sequences, the cache and preemptions do not change a pooled result", () => {
  fc.assert(
    fc.property(
      fc.array(text, { minLength: 2, maxLength: 8 }),
      fc.integer({ min: 5, max: 14 }),
      fc.constantFrom(7, 16, 100),
      (texts, pages, budget) => {
        const harness = new EngineHarness({
          spec: { pages, hidden },
          engine: { batch: staticBudget(budget), admission: { watermark: 0 } },
        });
        const specs = texts.map(({ tokens, pooling }) =>
          pooling === null ? sequenceSpec(tokens, 12) : pooled(tokens, pooling),
        );
        texts.forEach(({ stepsBefore }, i) => {
          for (let step = 0; step < stepsBefore; step++) harness.step();
          harness.submit(specs[i]!);
        });
        harness.finish();
        expect(harness.outcomes.map(({ tokens, finish }) => ({ tokens, finish }))).toEqual(
          specs.map((spec) => {
            const { tokens, finish } = tokensAlone(spec, { hidden, contextMax: pages * 16 });
            return { tokens, finish };
          }),
        );
      },
    ),
    runs(150),
  );
});

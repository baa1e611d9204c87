/** Texts of encoders: each is one chunk of one step, and nothing of it stays. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";
import type { SequenceId } from "../core.ts";

const hidden = { size: 8, rowsMax: 2048 };
const whole = (first: number, count: number) => ({
  ...sequenceSpec(tokensFrom(first, count), 1, { pooling: "mean" }),
  isWhole: true,
});

/** Chunks of a sequence. */
function chunksOf({ steps }: EngineHarness, id: SequenceId) {
  return steps.flatMap(({ number, chunks }) =>
    chunks
      .filter(({ sequence }) => sequence === id)
      .map(({ start, tokens }) => ({ number, start, count: tokens.length })),
  );
}

test("equal texts are each computed as one chunk, several in a step, and no page is cached", () => {
  const harness = new EngineHarness({ spec: { hidden } });
  const ids = Array.from({ length: 4 }, () => harness.submit(whole(0, 40)));
  harness.finish();
  const chunks = ids.flatMap((id) => chunksOf(harness, id));
  expect(chunks.map(({ start, count }) => [start, count])).toEqual(ids.map(() => [0, 40]));
  expect(new Set(chunks.map(({ number }) => number)).size).toBeLessThan(4);
  expect(harness.outcomes.map(({ cachedTokens, finish }) => [cachedTokens, finish?.kind])).toEqual(
    ids.map(() => [0, "pooled"]),
  );
  expect(harness.load).toMatchObject({ pagesFree: harness.load.pagesTotal, pagesCached: 0 });
});

test("a text longer than the step budget gets a step of its own; one longer than any step is rejected", () => {
  const harness = new EngineHarness({
    spec: { hidden, stepTokensMax: 256, contextMax: 1024 },
    engine: { batch: staticBudget(32) },
  });
  const [short, long, other, most] = [10, 200, 20, 257].map((count) => harness.submit(whole(count, count)));
  harness.finish();
  const [step] = chunksOf(harness, long!);
  expect(step).toMatchObject({ start: 0, count: 200 });
  for (const id of [short!, other!]) expect(chunksOf(harness, id)[0]!.number).not.toBe(step!.number);
  expect(harness.outcomes[most!]!.finish).toEqual({
    kind: "rejected",
    reason: "neverFits",
    needed: 257,
    limit: 256,
  });
});

test("whatever runs beside it, no text is split into chunks or read from the cache", () => {
  const text = fc.record({ first: fc.constantFrom(0, 5), count: fc.integer({ min: 1, max: 90 }) });
  fc.assert(
    fc.property(
      fc.array(text, { minLength: 1, maxLength: 12 }),
      fc.integer({ min: 1, max: 64 }),
      (texts, size) => {
        const harness = new EngineHarness({
          spec: { hidden, pages: 32 },
          engine: { batch: staticBudget(size) },
        });
        const chat = harness.submit(sequenceSpec(tokensFrom(0, 30), 8));
        const ids = texts.map(({ first, count }) => harness.submit(whole(first, count)));
        harness.finish();
        ids.forEach((id, i) => {
          expect(chunksOf(harness, id).map(({ start, count }) => [start, count])).toContainEqual([
            0,
            texts[i]!.count,
          ]);
          for (const { start, count } of chunksOf(harness, id))
            expect([start, count]).toEqual([0, texts[i]!.count]);
          expect(harness.outcomes[id]!.finish!.kind).toBe("pooled");
        });
        expect(harness.outcomes[chat]!.finish!.kind).toBe("length");
      },
    ),
    runs(60),
  );
});

/** Sequences that ask how likely their prompts are. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";
import type { SequenceId, TokenLogprobs } from "../core.ts";

const STEP_CHUNKS_MAX = 6;

/** `asks`: alternatives of each token of its prompt; null: it does not ask. */
const asker = fc.record({
  from: fc.nat(500),
  prompt: fc.integer({ min: 1, max: 60 }),
  tokensMax: fc.integer({ min: 1, max: 20 }),
  asks: fc.option(fc.nat(3)),
  pausedAfter: fc.option(fc.nat(5)),
});

/**
 * Reported log probabilities by ascending position; a position reported again after a preemption counts once.
 */
function toldOf({ reports }: EngineHarness, id: SequenceId): [number, TokenLogprobs][] {
  const told = new Map<number, TokenLogprobs>();
  for (const { prompts } of reports)
    for (const { sequence, start, logprobs } of prompts)
      if (sequence === id) for (const [i, one] of logprobs.entries()) told.set(start + i, one);
  return [...told].sort(([a], [b]) => a - b);
}

test("every token of such a prompt is told but the first, whatever runs beside it, and no step has more rows than it may", () => {
  const rule = fc.property(fc.array(asker, { minLength: 1, maxLength: 8 }), (askers) => {
    // Few pages, so that some are preempted.
    const harness = new EngineHarness({ spec: { pages: 12, stepChunksMax: STEP_CHUNKS_MAX } });
    const specs = askers.map(({ from, prompt, tokensMax, asks }, index) => ({
      ...sequenceSpec(tokensFrom(from, prompt), tokensMax),
      ...(asks === null ? {} : { promptLogprobs: asks, cacheSalt: `${index}` }),
    }));
    const ids = specs.map((spec) => harness.submit(spec));
    const pausedAt = (after: number | null): SequenceId[] =>
      ids.filter((_, index) => after !== null && askers[index]!.pausedAfter === after);
    for (let step = 0; step <= 5; step++) {
      harness.step();
      for (const id of pausedAt(step)) harness.send("pause", id);
    }
    for (const id of ids) harness.send("resume", id);
    harness.finish();

    for (const [index, spec] of specs.entries()) {
      const { tokens, finish } = tokensAlone(spec, { pages: 12 });
      expect(harness.outcomes[index]).toMatchObject({ tokens, finish });
      const told = toldOf(harness, ids[index]!);
      const alone = new EngineHarness({ spec: { pages: 12, stepChunksMax: STEP_CHUNKS_MAX } });
      const id = alone.submit(spec);
      alone.finish();
      expect(told).toEqual(toldOf(alone, id));
      const { asks } = askers[index]!;
      const places = asks === null ? 0 : spec.promptTokens.length - 1;
      expect(told.map(([place, { top }]) => [place, top.length])).toEqual(
        Array.from({ length: places }, (_, i) => [i + 1, asks!]),
      );
    }
    for (const { chunks } of harness.steps)
      expect(chunks.reduce((rows, { samples }) => rows + samples.length, 0)).toBeLessThanOrEqual(
        STEP_CHUNKS_MAX,
      );
  });
  fc.assert(rule, runs(200));
});

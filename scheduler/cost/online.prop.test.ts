/** Bounds on the online cost model under any observations, and how soon it believes consistent ones. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { PARTS, type PartedCostModel, type StepShape } from "./cost-model.ts";
import { linearCost } from "./linear.ts";
import { OnlineCostModel, RECENT, SLOWDOWN_MAX, WEIGHT_MAX } from "./online.ts";
import { openProfile } from "./profiles.ts";

interface Observation {
  readonly shape: StepShape;
  /** Measured time over the prior's, or any number at all. */
  readonly factor: number;
}

const priors: fc.Arbitrary<PartedCostModel> = fc.oneof(
  fc
    .tuple(...[1e-3, 1e-4, 1e-4, 1e-7, 1e-7].map((min) => fc.double({ min, max: 1000 * min, noNaN: true })))
    .map(([stepMs, tokenMs, sequenceMs, pairMs, contextMs]) =>
      linearCost(stepMs!, tokenMs!, 16, { sequenceMs: sequenceMs!, pairMs: pairMs!, contextMs: contextMs! }),
    ),
  fc.constantFrom("a100" as const, "a6000" as const).map((name) => openProfile(name).profile),
);

const prompts = fc.record({ tokens: fc.integer({ min: 1, max: 4096 }), context: fc.nat(32_768) });

const shapes: fc.Arbitrary<StepShape> = fc
  .record({ prompts: fc.array(prompts, { maxLength: 3 }), decodes: fc.nat(64), context: fc.nat(8192) })
  .map(({ prompts, decodes, context }) => ({
    prompts,
    decodes: prompts.length === 0 ? decodes + 1 : decodes,
    decodeContext: (prompts.length === 0 ? decodes + 1 : decodes) * context,
  }));

/** Any value that a clock may report. */
const anything = fc.oneof(
  fc.double({ min: 0.1, max: 10, noNaN: true }),
  fc.double({ min: 1e-9, max: 1e9, noNaN: true }),
  fc.constantFrom(0, -1, Number.NaN, Number.POSITIVE_INFINITY, Number.MIN_VALUE, 1e300),
);

const observations: fc.Arbitrary<Observation[]> = fc.array(fc.record({ shape: shapes, factor: anything }), {
  maxLength: 60,
});

function observe(model: OnlineCostModel, prior: PartedCostModel, seen: readonly Observation[]): void {
  for (const { shape, factor } of seen) model.observe(shape, factor * prior.stepMs(shape));
}

test("whatever was observed, slowdown and weights are in their bounds, and predictions in theirs", () => {
  fc.assert(
    fc.property(priors, observations, shapes, (prior, seen, asked) => {
      const model = new OnlineCostModel(prior);
      observe(model, prior, seen);
      const { slowdown, weights } = model.state();
      for (const [value, most] of [
        [slowdown, SLOWDOWN_MAX],
        ...weights.map((weight) => [weight, WEIGHT_MAX]),
      ] as const) {
        expect(value).toBeGreaterThanOrEqual(1 / most);
        expect(value).toBeLessThanOrEqual(most);
      }
      const ratio = model.stepMs(asked) / prior.stepMs(asked) / slowdown;
      expect(ratio).toBeGreaterThanOrEqual((1 - 1e-9) / WEIGHT_MAX);
      expect(ratio).toBeLessThanOrEqual((1 + 1e-9) * WEIGHT_MAX);
      expect(Number.isFinite(model.margin)).toBe(true);
    }),
  );
});

test("whatever was observed, more work is never predicted to take less time", () => {
  fc.assert(
    fc.property(
      priors,
      observations,
      shapes,
      prompts,
      fc.integer({ min: 1, max: 500 }),
      (prior, seen, asked, prompt, more) => {
        const model = new OnlineCostModel(prior);
        observe(model, prior, seen);
        const beside = (first: StepShape["prompts"][number]): StepShape => ({
          ...asked,
          prompts: [...asked.prompts, first],
        });
        const least = model.stepMs(asked);
        const least2 = model.stepMs(beside(prompt));
        const larger = [
          model.stepMs({ ...asked, decodes: asked.decodes + more }) / least,
          model.stepMs({ ...asked, decodeContext: asked.decodeContext + more }) / least,
          least2 / least,
          model.stepMs(beside({ ...prompt, tokens: prompt.tokens + more })) / least2,
          model.stepMs(beside({ ...prompt, context: prompt.context + more })) / least2,
        ];
        for (const ratio of larger) expect(ratio).toBeGreaterThanOrEqual(1 - 1e-12);
      },
    ),
  );
});

/** Relative noise of step times. */
const NOISE = 0.05;
const jitter = fc.double({ min: 1 - NOISE, max: 1 + NOISE, noNaN: true });
const jitters = (count: number) => fc.array(jitter, { minLength: count, maxLength: count });
const noisy = (count: number) =>
  fc.array(fc.record({ shape: shapes, factor: jitter }), { minLength: count, maxLength: count });
/** 1/100 … 100, as often below as above 1. */
const changes = fc
  .tuple(fc.boolean(), fc.double({ min: 1, max: 100, noNaN: true }))
  .map(([isFaster, factor]) => (isFaster ? 1 / factor : factor));

test("any change of speed is followed within eight steps of one kind, to within the noise", () => {
  fc.assert(
    fc.property(priors, shapes, jitters(40), jitters(8), changes, (prior, shape, before, after, change) => {
      const model = new OnlineCostModel(prior);
      const seen = [...before, ...after.map((factor) => change * factor)];
      observe(
        model,
        prior,
        seen.map((factor) => ({ shape, factor })),
      );
      expect(model.stepMs(shape) / (change * prior.stepMs(shape))).toBeWithin(
        1 - NOISE - 1e-9,
        1 + NOISE + 1e-9,
      );
    }),
  );
});

test("any change of speed is followed within fifteen steps of any kinds, roughly", () => {
  fc.assert(
    fc.property(priors, noisy(40), noisy(RECENT), changes, shapes, (prior, before, after, change, asked) => {
      const model = new OnlineCostModel(prior);
      observe(model, prior, before);
      observe(
        model,
        prior,
        after.map(({ shape, factor }) => ({ shape, factor: change * factor })),
      );
      // The weights keep a trace of the steps before the model believed the new speed.
      expect(model.stepMs(asked) / (change * prior.stepMs(asked))).toBeWithin(1 / 2, 2);
    }),
  );
});

test("up to seven outliers leave the slowdown within the range of the other steps", () => {
  fc.assert(
    fc.property(
      priors,
      shapes,
      fc.array(anything, { maxLength: (RECENT - 1) / 2 }),
      fc.double({ min: 0.01, max: 100, noNaN: true }),
      (prior, shape, lies, factor) => {
        const model = new OnlineCostModel(prior);
        observe(model, prior, new Array(2 * RECENT).fill({ shape, factor }));
        observe(
          model,
          prior,
          lies.map((lie) => ({ shape, factor: lie })),
        );
        // With a single shape any weights fit; the slowdown makes up the difference.
        expect(model.stepMs(shape) / (factor * prior.stepMs(shape))).toBeCloseTo(1, 6);
      },
    ),
  );
});

test("a cost term that no step had stays at the prior times the slowdown", () => {
  fc.assert(
    fc.property(priors, fc.array(anything, { maxLength: 100 }), fc.nat(50), (prior, factors, decodes) => {
      const model = new OnlineCostModel(prior);
      const shape: StepShape = { prompts: [], decodes: decodes + 1, decodeContext: 0 };
      observe(
        model,
        prior,
        factors.map((factor) => ({ shape, factor })),
      );
      const [before, after] = [new Float64Array(PARTS), new Float64Array(PARTS)];
      const pairs = { prompts: [{ tokens: 1000, context: 8000 }], decodes: 0, decodeContext: 0 };
      prior.partsMs(pairs, before);
      model.partsMs(pairs, after);
      expect(after[3]! / before[3]! / model.state().slowdown).toBeCloseTo(1, 9);
    }),
  );
});

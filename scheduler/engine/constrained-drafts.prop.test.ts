/** Drafts under constraints: token masks follow the drafts, and clients receive the same output as without. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { compileConstraint } from "../../grammar/compile.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import { vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { fixedDrafts } from "../../simulation/baselines/fixed-drafts.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import { oracleDrafts } from "../../tests/support/oracle-drafts.ts";
import { runs } from "../../tests/support/property.ts";
import type { Sampled, SampleRow, SequenceSpec, TokenLogprobs } from "../core.ts";
import type { Device } from "../device.ts";

const VOCABULARY = 6;
const END = 0;
const CONTEXT = 160;
/** "a" … "e"; token 0 ends a text. */
const vocabulary = vocabularyOf(VOCABULARY, (token) =>
  token === END ? new Uint8Array(0) : Uint8Array.of(96 + token),
);
const bytesOf = (text: string): number[] => [...new TextEncoder().encode(text)];

const constraintOf = (pattern: string, more: Partial<Constraint> = {}): Constraint => ({
  id: pattern,
  grammar: compileConstraint({ kind: "regex", pattern }).grammar,
  ...more,
});
const constraints = [
  constraintOf("[a-e]*"),
  constraintOf("((abc|abd|eb)(ec)?)*"),
  // Much is forced.
  constraintOf("((abcde|edcba)(b|d))*"),
  constraintOf("a{3,9}b{1,4}(cd){5,20}e?"),
  constraintOf("(b[acde]{1,12}b)?(ce|d)*", {
    thoughts: {
      tokensMax: 4,
      isOpen: false,
      opening: bytesOf("b"),
      closing: bytesOf("b"),
      closingTokens: [2],
    },
  }),
];

const specs: fc.Arbitrary<Omit<SequenceSpec, "id">> = fc
  .record({
    prompt: fc.array(fc.nat({ max: VOCABULARY - 1 }), { minLength: 1, maxLength: 20 }),
    tokensMax: fc.integer({ min: 1, max: 60 }),
    tokensMin: fc.nat({ max: 20 }),
    temperature: fc.constantFrom(0, 1),
    seed: fc.nat({ max: 3 }),
    presencePenalty: fc.constantFrom(0, 1),
    badWords: fc.constantFrom<number[][]>([], [[1, 2, 4]], [[3, 5]]),
    allowedTokens: fc.constantFrom(null, null, Uint32Array.of(0b111111), Uint32Array.of(0b110111)),
    topLogprobs: fc.constantFrom(null, null, 1),
    constraint: fc.constantFrom(null, ...constraints),
  })
  .map(({ prompt, tokensMax, tokensMin, seed, constraint, ...sampling }) =>
    sequenceSpec(prompt, tokensMax, {
      sampling: { ...sampling, seed: [seed, 0] },
      stop: { tokensMin, stopTokens: [END] },
      ...(constraint === null ? {} : { constraint }),
    }),
  );

interface Setup {
  readonly chance: number | "model" | null;
  readonly checked?: number;
  readonly maskSteps?: number;
  /** Slots of recurrent states; null: there are none. */
  readonly slots?: number | null;
  readonly wrap?: (drawing: Device) => Device;
}

/** Runs sequences to their ends with drafts of an oracle, or of a draft model; null: without any. */
function play(
  all: readonly Omit<SequenceSpec, "id">[],
  { chance, checked = 8, maskSteps = 1000, slots = null, wrap }: Setup,
) {
  const answers = new Map<number, readonly number[]>();
  const answerOf = (spec: SequenceSpec): readonly number[] => {
    const device = { contextMax: CONTEXT, vocabSize: VOCABULARY };
    const answer = answers.get(spec.id) ?? tokensAlone(spec, device, vocabulary).tokens;
    answers.set(spec.id, answer);
    return answer;
  };
  const harness = new EngineHarness({
    vocabulary,
    maskSteps,
    spec: {
      ...{ pages: 64, pageTokens: 4, contextMax: CONTEXT, vocabSize: VOCABULARY },
      ...(chance === "model" ? { draftsMax: 8, draftModel: { share: 0.1 } } : {}),
      ...(slots === null ? {} : { states: { slots, bytes: 1 } }),
    },
    engine: {
      sharedTokensMin: 1,
      batch: fixedDrafts(staticBudget(64), checked),
      drafts:
        typeof chance === "number"
          ? oracleDrafts(answerOf, chance, VOCABULARY)
          : { kind: chance === null ? "off" : "head" },
    },
    isStallFree: false,
    ...(wrap === undefined ? {} : { wrap }),
  });
  for (const spec of all) harness.submit(spec);
  harness.finish();
  return harness;
}

/**
 * All that clients are told, in order. A forced token has no log probabilities, and a sequence that asks for
 * them has none forced.
 */
function toldBy({ reports, outcomes }: EngineHarness): unknown {
  return outcomes.map(({ finish }, id) => {
    const drawn: [number, TokenLogprobs | null][] = [];
    for (const { sequences, tokens, logprobs } of reports) {
      for (const [i, sequence] of sequences.entries())
        if (sequence === id) drawn.push([tokens[i]!, logprobs?.[i] ?? null]);
    }
    return { drawn, finish };
  });
}

test("drafts of any quality change nothing that clients with constraints receive", () => {
  let accepted = 0;
  const rule = fc.property(
    fc.array(specs, { minLength: 1, maxLength: 4 }),
    fc.constantFrom<(number | "model")[]>(0.5, 0.9, 1, "model", "model"),
    fc.constantFrom(1, 3, 16),
    fc.constantFrom(1, 30, 1000),
    (all, chance, checked, maskSteps) => {
      const drafted = play(all, { chance, checked, maskSteps });
      expect(toldBy(drafted)).toEqual(toldBy(play(all, { chance: null })));
      const { pagesFree, pagesCached, pagesTotal, acceptedTokensTotal } = drafted.load;
      expect(pagesFree + pagesCached).toBe(pagesTotal);
      accepted += acceptedTokensTotal;
    },
  );
  fc.assert(rule, runs(100));
  expect(accepted).toBeGreaterThan(200);
}, 60_000);

test("a deferred row never puts a checkpoint and drafts at the same token", () => {
  const prompt = Array.from({ length: 20 }, (_, i) => 1 + (i % 5));
  const [constraint] = constraints as [Constraint];
  const all = [
    sequenceSpec(prompt, 12, { constraint }),
    sequenceSpec([...prompt, 2, 2, 2, 2, 2], 12),
    sequenceSpec([...prompt, 3, 3, 3, 3, 3], 12),
  ];
  const drafted = play(all, { chance: 1, maskSteps: 1, slots: 12 });
  expect(toldBy(drafted)).toEqual(toldBy(play(all, { chance: null })));
  expect(drafted.outcomes.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 20, 20]);
  expect(drafted.load.acceptedTokensTotal).toBeGreaterThan(20);
});

/** Device that changes the rows that it is given, and what is drawn in them, with the draft after each row. */
function tampered(
  drawing: Device,
  rowOf: (row: SampleRow, first: SampleRow) => SampleRow,
  drawnOf: (one: Sampled, draft: number | undefined) => Sampled,
): Device {
  return {
    spec: drawing.spec,
    start: (step, done) => {
      const chunks = step.chunks.map((chunk) => {
        const rows = chunk.samples.filter((row) => row.wants === undefined);
        return { ...chunk, samples: rows.map((row) => rowOf(row, rows[0]!)) };
      });
      drawing.start({ ...step, chunks }, (result) => {
        if (result.kind !== "done") return done(result);
        let row = 0;
        const drafts = chunks.flatMap(({ samples, tokens }) =>
          samples.map(({ afterIndex }) => tokens[afterIndex + 1]),
        );
        done({ ...result, sampled: result.sampled.map((one) => drawnOf(one, drafts[row++])) });
      });
    },
    close: () => drawing.close(),
  };
}

const faults: Record<string, (drawing: Device) => Device> = {
  "every draft is taken": (drawing) =>
    tampered(
      drawing,
      (row) => row,
      (one, draft) => (one.kind === "token" && draft !== undefined ? { ...one, token: draft } : one),
    ),
  "masks stand still": (drawing) =>
    tampered(
      drawing,
      (row, { allowed }) => ({ ...row, allowed }),
      (one) => one,
    ),
};

test.each(Object.entries(faults))("such a fault is found: %s", (_, wrap) => {
  const spec = (seed: number): Omit<SequenceSpec, "id"> =>
    sequenceSpec([1, 2, 3], 40, {
      sampling: { temperature: 1, seed: [seed, 0] },
      stop: { stopTokens: [END] },
      constraint: constraints[1]!,
    });
  const all = [0, 1, 2, 3].map(spec);
  const plain = toldBy(play(all, { chance: null }));
  expect(toldBy(play(all, { chance: 0.7 }))).toEqual(plain);
  expect(toldBy(play(all, { chance: 0.7, wrap }))).not.toEqual(plain);
});

test("drafts that obey a constraint keep their length; others are cut at the first token it forbids", () => {
  const spec = sequenceSpec([1, 2, 3], 45, {
    stop: { stopTokens: [END], tokensMin: 45 },
    constraint: constraints[0]!,
  });
  const right = play([spec], { chance: 1 });
  expect(right.steps.length).toBe(6);
  expect(right.load).toMatchObject({ draftTokensTotal: 39, acceptedTokensTotal: 39 });
  // "a" goes on with "b" only: each wrong token leaves the grammar, and none is checked.
  const forced = {
    ...spec,
    constraint: constraintOf("(ab)*"),
    sampling: { ...spec.sampling, topLogprobs: 0 },
  };
  const wrong = play([forced], { chance: 0 });
  expect(wrong.load).toMatchObject({ draftTokensTotal: 0 });
  expect(toldBy(wrong)).toEqual(toldBy(play([forced], { chance: null })));
});

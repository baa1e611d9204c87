/** Verified drafts change no token, no log probability and no finish reason, and save steps. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { fixedDrafts } from "../../simulation/baselines/fixed-drafts.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import { oracleDrafts } from "../../tests/support/oracle-drafts.ts";
import { runs } from "../../tests/support/property.ts";
import {
  chatService,
  type SequenceId,
  type SequenceSpec,
  type Step,
  type StepResult,
  type TokenLogprobs,
} from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import type { DeviceSpec } from "../device.ts";
import { ours } from "../policies.ts";

const VOCABULARY = 6;
const CONTEXT = 160;

const specs: fc.Arbitrary<Omit<SequenceSpec, "id">> = fc
  .record({
    prompt: fc.array(fc.nat({ max: VOCABULARY - 1 }), { minLength: 1, maxLength: 30 }),
    tokensMax: fc.integer({ min: 1, max: 60 }),
    tokensMin: fc.nat({ max: 30 }),
    stopTokens: fc.constantFrom<number[]>([], [1], [0, 3]),
    temperature: fc.constantFrom(0, 1),
    seed: fc.nat({ max: 3 }),
    penalties: fc.constantFrom(
      {},
      { presencePenalty: 1 },
      { frequencyPenalty: 0.5 },
      { repetitionPenalty: 1.2 },
    ),
    badWords: fc.constantFrom<number[][]>([], [[2]], [[1, 1]], [[0, 1, 2], [4, 5], [3]], [[5, 4, 3, 2]]),
    logitBias: fc.constantFrom<(readonly [number, number])[]>([], [[2, -100]], [[4, 100]]),
    allowedTokens: fc.constantFrom(null, null, Uint32Array.of(0b110111)),
    topLogprobs: fc.constantFrom(null, 0, 2),
    isHeld: fc.boolean(),
    isOffline: fc.boolean(),
    promptLogprobs: fc.constantFrom(null, null, null, null, 1),
  })
  .map(
    ({
      prompt,
      tokensMax,
      seed,
      tokensMin,
      stopTokens,
      penalties,
      isHeld,
      isOffline,
      promptLogprobs,
      ...rest
    }) => ({
      ...sequenceSpec(prompt, tokensMax, {
        sampling: { ...rest, ...penalties, seed: [seed, 0] },
        stop: { tokensMin, stopTokens },
        service: { objective: isOffline ? "throughput" : "latency" },
        isHeld,
      }),
      ...(promptLogprobs === null ? {} : { promptLogprobs }),
    }),
  );

interface Played {
  readonly harness: EngineHarness;
  readonly steps: number;
  readonly accepted: number;
}

/** Runs sequences to their ends with drafts of an oracle, of the device's head or draft model, or without any. */
function play(
  all: readonly Omit<SequenceSpec, "id">[],
  chance: number | "head" | "model" | null,
  {
    pages = 64,
    checked = 8,
    slots = null as number | null,
    fault = (_: Step): StepResult | null => null,
  } = {},
): Played {
  const answers = new Map<SequenceId, readonly number[]>();
  const answerOf = (spec: SequenceSpec): readonly number[] => {
    const known = answers.get(spec.id) ?? tokensAlone(spec, { contextMax, vocabSize: VOCABULARY }).tokens;
    answers.set(spec.id, known);
    return known;
  };
  const contextMax = Math.min(CONTEXT, pages * 4);
  const harness = new EngineHarness({
    spec: {
      ...{ pages, pageTokens: 4, contextMax: CONTEXT, vocabSize: VOCABULARY },
      ...(slots === null ? {} : { states: { slots, bytes: 1 } }),
      ...(chance === "head" ? { draftsMax: 4 } : {}),
      ...(chance === "model" ? { draftsMax: 8, draftModel: { share: 0.1 } } : {}),
    },
    engine: {
      batch: checked === 0 ? ours().batch : fixedDrafts(staticBudget(64), checked),
      drafts:
        typeof chance !== "number"
          ? { kind: chance === null ? "off" : "head" }
          : oracleDrafts(answerOf, chance, VOCABULARY),
    },
    isStallFree: false,
    fault,
  });
  for (const spec of all) harness.submit(spec);
  harness.finish();
  for (const [id] of all.entries()) harness.release(id as SequenceId);
  harness.finish();
  return { harness, steps: harness.steps.length, accepted: harness.load.acceptedTokensTotal };
}

/** All that a sequence's client is told, in order. */
function toldTo(id: number, { reports, outcomes }: EngineHarness): unknown {
  const drawn: [number, TokenLogprobs | null][] = [];
  for (const { sequences, tokens, logprobs } of reports) {
    for (const [i, sequence] of sequences.entries())
      if (sequence === id) drawn.push([tokens[i]!, logprobs?.[i] ?? null]);
  }
  return { drawn, finish: outcomes[id]!.finish };
}

test("drafts of any quality change nothing that clients receive", () => {
  let accepted = 0;
  const rule = fc.property(
    fc.array(specs, { minLength: 1, maxLength: 5 }),
    fc.constantFrom<(number | "head" | "model")[]>(0, 0.5, 0.9, 1, "head", "model", "model"),
    fc.constantFrom(0, 1, 3, 16),
    fc.integer({ min: 16, max: 64 }),
    fc.constantFrom(null, null, 1, 2, 6, 20),
    (all, chance, checked, pages, slots) => {
      // Steps that may be given up are, every third time; and some are started again.
      const fault = ({ isAbortable, number }: Step): StepResult | null =>
        isAbortable === true && number % 3 === 0 ? { kind: "aborted", reason: "something came" } : null;
      const without = play(all, null, { pages });
      const drafted = play(all, chance, { pages, checked, slots, fault });
      for (const [id] of all.entries())
        expect(toldTo(id, drafted.harness)).toEqual(toldTo(id, without.harness));
      const { pagesFree, pagesCached, pagesTotal } = drafted.harness.load;
      expect(pagesFree + pagesCached).toBe(pagesTotal);
      accepted += drafted.accepted;
    },
  );
  fc.assert(rule, runs(200));
  expect(accepted).toBeGreaterThan(500);
});

test("a step whose drafts are all accepted yields the verified tokens and one more", () => {
  const spec = sequenceSpec([1, 2, 3], 45);
  expect(play([spec], null).steps).toBe(45);
  // The first step computes the prompt, and each of five further ones 8 drafts and a token.
  expect(play([spec], 1, { checked: 8 })).toMatchObject({ steps: 6, accepted: 39 });
  expect(play([spec], 0, { checked: 8 })).toMatchObject({ steps: 45, accepted: 0 });
  // Most drafts of the device's head are right.
  const { steps, accepted } = play([spec], "head", { checked: 8 });
  expect(steps + accepted).toBe(45);
  expect(accepted).toBeGreaterThan(20);
});

test("drafts never exceed max_tokens or the context length", () => {
  const longest = (spec: Omit<SequenceSpec, "id">, pages: number): number => {
    const { harness } = play([spec], 1, { pages, checked: 16 });
    return Math.max(
      ...harness.steps.flatMap(({ chunks }) => chunks.map((chunk) => chunk.start + chunk.tokens.length)),
    );
  };
  // The last token is drawn and never computed.
  expect(longest(sequenceSpec([1, 2, 3], 20), 64)).toBe(22);
  expect(longest(sequenceSpec([1, 2, 3], 100), 8)).toBe(31);
});

test("no drafts for sequences that decline them or are in prefill", () => {
  const spec = sequenceSpec([1, 2, 3], 20);
  expect(play([{ ...spec, draftTokensMax: 0 }], 1).accepted).toBe(0);
  expect(play([{ ...spec, draftTokensMax: 2 }], 1)).toMatchObject({ accepted: 12, steps: 8 });
  expect(play([{ ...spec, draftTokensMax: 0 }, spec], 1).accepted).toBeGreaterThan(0);
  expect(play([{ ...spec, promptLogprobs: 1 }], 1).accepted).toBe(0);
});

test("a device of one sequence takes as many rows as it says", () => {
  const longest = (rows: Partial<DeviceSpec>): number => {
    const harness = new EngineHarness({
      spec: { vocabSize: VOCABULARY, stepChunksMax: 1, ...rows },
      engine: {
        batch: fixedDrafts(staticBudget(64), 16),
        drafts: oracleDrafts(() => new Array<number>(40).fill(0), 1, VOCABULARY),
      },
    });
    harness.submit(sequenceSpec([1, 2, 3], 40));
    harness.finish();
    return Math.max(...harness.steps.flatMap(({ chunks }) => chunks.map(({ samples }) => samples.length)));
  };
  expect([longest({}), longest({ stepDrawsMax: 6 })]).toEqual([1, 6]);
});

test("after a rejection a recurrent state rolls back to before the draft, and accepted tokens are recomputed", () => {
  const spec = sequenceSpec([1, 2, 3], 45);
  expect(play([spec], 1, { slots: 2 })).toMatchObject({ steps: 6, accepted: 39 });
  // Without a free slot there are no drafts.
  expect(play([spec], 1, { slots: 1 })).toMatchObject({ steps: 45, accepted: 0 });
  const { harness, steps, accepted } = play([spec], 0.7, { slots: 2 });
  expect(steps).toBe(45 - accepted);
  expect(accepted).toBeGreaterThan(10);
  const counts = harness.steps.flatMap(({ chunks }) =>
    chunks.map(({ tokens, drafted = 0 }) => tokens.length - drafted),
  );
  expect(Math.max(...counts.slice(1))).toBeGreaterThan(1);
});

test("a sequence aborted during verification leaves the state before its drafts", () => {
  const spec = sequenceSpec([1, 2, 3, 4, 5, 0, 1, 2], 40);
  const answer = tokensAlone(spec, { vocabSize: VOCABULARY }).tokens;
  const harness = new EngineHarness({
    spec: { vocabSize: VOCABULARY, pageTokens: 4, states: { slots: 8, bytes: 1 } },
    engine: {
      batch: fixedDrafts(staticBudget(64), 4),
      drafts: oracleDrafts((of) => (of.id === 0 ? answer : []), 1, VOCABULARY),
    },
  });
  const id = harness.submit(spec);
  harness.step();
  harness.step();
  harness.engine.run();
  expect(harness.steps.at(-1)!.chunks[0]!.drafted).toBe(4);
  harness.send("abort", id);
  harness.step();
  const known = [...Array.from(spec.promptTokens), ...answer];
  harness.submit(sequenceSpec(known, 4));
  harness.finish();
  // The prompt, a first draft and the token before the second one are computed.
  expect(harness.outcomes[1]).toMatchObject({ cachedTokens: 8 + 5 + 1, finish: { kind: "length" } });
});

test("streams with drafts keep their targets on a device whose costs are known", () => {
  const answers = new Map<SequenceId, readonly number[]>();
  const answerOf = (spec: SequenceSpec): readonly number[] => {
    const answer = answers.get(spec.id) ?? tokensAlone(spec, { vocabSize: VOCABULARY }).tokens;
    answers.set(spec.id, answer);
    return answer;
  };
  const harness = new EngineHarness({
    spec: { vocabSize: VOCABULARY, pages: 1024 },
    cost: linearCost(10, 1),
    engine: { batch: { ...ours(20).batch, margin: 0 }, drafts: oracleDrafts(answerOf, 0.9, VOCABULARY) },
    isStallFree: false,
  });
  for (const [index, length] of [5, 40, 10].entries()) {
    harness.submit(
      sequenceSpec(
        tokensFrom(index, length).map((token) => token % VOCABULARY),
        60,
      ),
    );
    for (let step = 0; step < 5; step++) harness.step();
  }
  harness.finish();
  expect(harness.load.acceptedTokensTotal).toBeGreaterThan(60);
  expect(harness.load.stepsOverTarget).toBe(0);
});

test("streams keep their targets with a draft model, whose time is known", () => {
  const targetMs = 16;
  const harness = new EngineHarness({
    spec: { vocabSize: VOCABULARY, pages: 1024, draftsMax: 8, draftModel: { share: 0.1 } },
    cost: linearCost(10, 0.1),
    engine: { batch: { ...ours(targetMs).batch, margin: 0 }, drafts: { kind: "head" } },
    isStallFree: false,
  });
  for (const length of [5, 40, 10]) {
    harness.submit(
      sequenceSpec(
        tokensFrom(length, length).map((token) => token % VOCABULARY),
        60,
      ),
    );
    for (let step = 0; step < 5; step++) harness.step();
  }
  harness.finish();
  expect(harness.load.acceptedTokensTotal).toBeGreaterThan(20);
  expect(harness.load.stepsOverTarget).toBe(0);
  expect(
    Math.max(...harness.steps.flatMap(({ chunks }) => chunks.map(({ drafts = 0 }) => drafts))),
  ).toBeLessThan(7);
});

test("beside a stream without drafts a draft model lengthens a step by a quarter at most", () => {
  const longest = (others: readonly Partial<SequenceSpec>[]): number => {
    const harness = new EngineHarness({
      spec: { vocabSize: VOCABULARY, draftsMax: 8, draftModel: { share: 0.1 } },
      cost: linearCost(10, 0.01),
      engine: { drafts: { kind: "head" } },
    });
    harness.submit(sequenceSpec([1, 2, 3], 60));
    for (const other of others) harness.submit({ ...sequenceSpec([3, 2, 1], 60), ...other });
    harness.finish();
    return Math.max(...harness.steps.flatMap(({ chunks }) => chunks.map(({ drafts = 0 }) => drafts)));
  };
  expect(longest([])).toBeGreaterThan(2);
  expect(longest([{}])).toBeGreaterThan(2);
  expect(longest([{ draftTokensMax: 0 }])).toBe(2);
  expect(
    longest([{ draftTokensMax: 0, service: { ...chatService, objective: "throughput" } }]),
  ).toBeGreaterThan(2);
});

test("a drafter that throws loses its drafts, not the answer", () => {
  const harness = new EngineHarness({
    engine: {
      batch: fixedDrafts(staticBudget(64), 4),
      drafts: {
        kind: "baseline",
        open: () => ({
          priors: [1],
          open: () => ({
            draft: () => {
              throw new Error("a faulty drafter");
            },
          }),
        }),
      },
    },
  });
  harness.submit(sequenceSpec([1, 2, 3], 10));
  harness.finish();
  expect(harness.outcomes[0]!.finish).toEqual({ kind: "length" });
});

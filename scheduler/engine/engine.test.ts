/** The engine's loop: how sequences end, what an abort frees and when, and what happens when the device
 *  fails. */

import { expect, test } from "bun:test";
import { compileConstraint } from "../../grammar/compile.ts";
import { vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { SampleRow, SequenceId, Step, StepResult } from "../core.ts";

test("a sequence ends with its stop token, which is reported", () => {
  const { tokens } = tokensAlone(sequenceSpec(tokensFrom(0, 20), 10));
  const stopTokens = [tokens[4]!];
  const { tokens: stopped, finish } = tokensAlone(
    sequenceSpec(tokensFrom(0, 20), 10, { stop: { stopTokens } }),
  );
  expect(stopped).toEqual(tokens.slice(0, 5));
  expect(finish).toEqual({ kind: "stop", token: tokens[4]! });
});

test("a stop token cannot be drawn before tokensMin tokens are out", () => {
  const { tokens } = tokensAlone(sequenceSpec(tokensFrom(0, 20), 10));
  const stop = { stopTokens: [tokens[0]!], tokensMin: 1 };
  const harness = new EngineHarness();
  harness.submit(sequenceSpec(tokensFrom(0, 20), 10, { stop }));
  harness.finish();
  expect(harness.outcomes[0]!.tokens[0]).not.toBe(tokens[0]);
  const banned = harness.steps.map((step) => (step.chunks[0]!.samples[0] as SampleRow).banned);
  expect(banned[0]).toEqual(stop.stopTokens);
  expect(banned.slice(1).every((list) => list.length === 0)).toBe(true);
});

test("the last token that is allowed ends a sequence with length: tokensMax, or the longest context", () => {
  expect(tokensAlone(sequenceSpec([1], 1))).toMatchObject({ finish: { kind: "length" }, cachedTokens: 0 });
  const full = tokensAlone(sequenceSpec(tokensFrom(0, 20), 100), { contextMax: 30 });
  expect(full.tokens).toHaveLength(10);
  expect(full.finish).toEqual({ kind: "length" });
});

test("all pages of a device can go to one sequence, also when its own prompt is in the cache", () => {
  const harness = new EngineHarness({ spec: { pages: 4 } });
  for (let round = 0; round < 2; round++) {
    harness.submit(sequenceSpec(tokensFrom(0, 63), 100));
    harness.submit(sequenceSpec(tokensFrom(0, 20), 100));
    harness.finish();
  }
  expect(harness.outcomes.map((outcome) => outcome.tokens.length)).toEqual([1, 44, 1, 44]);
  expect(harness.outcomes[1]!.tokens).toEqual(harness.outcomes[3]!.tokens);
});

test("a prompt that extends a prompt and its answer hits both in the cache, to the last computed token", () => {
  const harness = new EngineHarness();
  const first = tokensFrom(0, 20);
  harness.submit(sequenceSpec(first, 7));
  harness.finish();
  const drawn = harness.outcomes[0]!.tokens;
  harness.submit(sequenceSpec([...first, ...drawn, ...tokensFrom(500, 5)], 1));
  harness.finish();
  expect(harness.outcomes[1]!.cachedTokens).toBe(20 + 7 - 1); // nothing was drawn after the last one
});

test("a sequence that can never fit is rejected at once and blocks no other", () => {
  const harness = new EngineHarness({ spec: { pages: 4 } });
  harness.submit(sequenceSpec(tokensFrom(0, 64), 1));
  harness.submit(sequenceSpec(tokensFrom(0, 63), 1));
  harness.submit(sequenceSpec([], 1));
  harness.submit(sequenceSpec([5, 1000], 1));
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.finish)).toEqual([
    { kind: "rejected", reason: "neverFits", needed: 65, limit: 64 },
    { kind: "length" },
    { kind: "failed", reason: "The prompt has no tokens." },
    { kind: "failed", reason: "Prompt token 1000 is not in the vocabulary of 1000." },
  ]);
});

test("a full waiting queue rejects, and accepts again once a sequence has left it", () => {
  const harness = new EngineHarness({ engine: { queueMax: 2, admission: { sequencesMax: 1 } } });
  for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(tokensFrom(i, 10), 2));
  harness.engine.run();
  expect(harness.outcomes[2]!.finish).toEqual({ kind: "rejected", reason: "queueFull", needed: 3, limit: 2 });
  harness.step();
  harness.submit(sequenceSpec(tokensFrom(50, 10), 2));
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.finish?.kind)).toEqual([
    "length",
    "length",
    "rejected",
    "length",
  ]);
});

test("an abort frees the pages within one step: while it is in flight, between steps, waiting and paused", () => {
  const harness = new EngineHarness({ engine: { batch: staticBudget(64), admission: { sequencesMax: 2 } } });
  const inFlight = harness.submit(sequenceSpec(tokensFrom(0, 200), 10));
  const paused = harness.submit(sequenceSpec(tokensFrom(300, 20), 10));
  const waiting = harness.submit(sequenceSpec(tokensFrom(600, 20), 10));
  for (let i = 0; i < 5; i++) harness.step();
  harness.send("pause", paused);
  harness.step();
  for (const sequence of [inFlight, paused, waiting]) harness.send("abort", sequence);
  const stepsBefore = harness.steps.length;
  harness.step();
  expect(harness.steps.length).toBe(stepsBefore);
  expect(harness.outcomes.map((outcome) => outcome.finish?.kind)).toEqual(["aborted", "aborted", "aborted"]);
  const { pagesFree, pagesCached, pagesTotal, running, paused: held, waiting: queued } = harness.load;
  expect(pagesFree + pagesCached).toBe(pagesTotal);
  expect([running, held, queued]).toEqual([0, 0, 0]);
  expect(harness.engine.busy).toBe(false);
});

test("the result of a step whose sequence was aborted meanwhile is dropped", () => {
  const harness = new EngineHarness();
  const id = harness.submit(sequenceSpec(tokensFrom(0, 20), 10));
  harness.step();
  harness.send("abort", id);
  harness.send("abort", id);
  harness.finish();
  expect(harness.outcomes[0]!.tokens).toHaveLength(1);
  expect(harness.outcomes[0]!.finish).toEqual({ kind: "aborted" });
  harness.send("abort", id);
  harness.send("resume", id);
  expect(harness.engine.busy).toBe(false);
});

test("a paused sequence keeps its pages and continues where it stopped", () => {
  const spec = sequenceSpec(tokensFrom(0, 20), 10);
  const harness = new EngineHarness();
  const id = harness.submit(spec);
  harness.step();
  harness.send("pause", id);
  harness.finish();
  const { pagesFree, pagesCached, pagesTotal, paused } = harness.load;
  expect([paused, pagesTotal - pagesFree - pagesCached]).toEqual([1, 2]);
  expect(harness.engine.busy).toBe(false);
  harness.send("resume", id);
  harness.finish();
  expect(harness.outcomes[0]!.tokens).toEqual(tokensAlone(spec).tokens);
  expect(harness.load.preemptionsTotal).toBe(0);
});

test("pausing before admission keeps a sequence from being admitted", () => {
  const harness = new EngineHarness();
  const id = harness.submit(sequenceSpec(tokensFrom(0, 20), 3));
  harness.send("pause", id);
  harness.finish();
  expect(harness.steps).toHaveLength(0);
  harness.send("resume", id);
  harness.finish();
  expect(harness.outcomes[0]!.finish).toEqual({ kind: "length" });
});

test("pausing the last runnable sequence is reported, though no step follows", () => {
  const harness = new EngineHarness();
  const id = harness.submit(sequenceSpec(tokensFrom(0, 20), 3));
  harness.send("pause", id);
  harness.engine.run();
  expect(harness.load).toMatchObject({ paused: 1, waiting: 0, running: 0, stepsTotal: 0 });
  const told = harness.reports.length;
  harness.engine.run();
  expect(harness.reports).toHaveLength(told);
  harness.send("abort", id);
  harness.engine.run();
  expect(harness.load.paused).toBe(0);
});

test("a step is counted in the report of its completion, with its duration; a report of started sequences counts the steps before", () => {
  const fault = ({ number, chunks }: Step): StepResult => {
    const sampled = chunks.map(
      ({ sequence }) => ({ kind: "token", sequence, token: 5, logprobs: null }) as const,
    );
    return { kind: "done", sampled, deviceMs: number };
  };
  const harness = new EngineHarness({ fault });
  for (let i = 0; i < 2; i++) {
    harness.submit(sequenceSpec(tokensFrom(100 * i, 20), 2));
    harness.finish();
  }
  const told = harness.reports.map(({ started, load }) => [started.length, load.stepsTotal, load.deviceMs]);
  expect(told).toEqual([
    [1, 0, 0],
    [0, 1, 1],
    [0, 2, 2],
    [1, 2, 2],
    [0, 3, 3],
    [0, 4, 4],
  ]);
});

test("an idle engine checks its page counts each time, and all its records every ten seconds", () => {
  const harness = new EngineHarness({ engine: { integrity: "idle" } });
  const checksMs: number[] = [];
  const check = harness.engine.checkIntegrity.bind(harness.engine);
  harness.engine.checkIntegrity = () => {
    checksMs.push(harness.clock.nowMs());
    check();
  };
  for (let i = 0; i < 30; i++) {
    harness.submit(sequenceSpec(tokensFrom(i, 20), 1));
    harness.finish();
    harness.clock.advance(1000);
  }
  expect(checksMs.length).toBeGreaterThanOrEqual(2);
  expect(checksMs.length).toBeLessThanOrEqual(3);
});

test("pages that a failed sequence published are removed from the cache", () => {
  for (const shared of [0, 8, 64]) {
    const fault = ({ number, chunks }: Step): StepResult | null => {
      if (number !== 4) return null;
      const sequence = chunks[0]!.sequence;
      const sampled = [{ kind: "failed", sequence, reason: "logits not finite" } as const];
      return { kind: "done", sampled, deviceMs: 1 };
    };
    const harness = new EngineHarness({ fault, engine: { batch: staticBudget(128) } });
    harness.submit(sequenceSpec([...tokensFrom(0, shared), ...tokensFrom(700, 30)], 1));
    harness.finish();
    for (let i = 0; i < 2; i++) {
      harness.submit(sequenceSpec(tokensFrom(0, 300 + shared), 2));
      harness.finish();
    }
    expect(harness.outcomes[1]!.finish?.kind).toBe("failed");
    expect(harness.outcomes[2]).toEqual({
      ...tokensAlone(sequenceSpec(tokensFrom(0, 300 + shared), 2)),
      cachedTokens: shared,
    });
  }
});

test("every decode is in every step from its first token to its last, whatever else goes on", () => {
  const harness = new EngineHarness({ spec: { pages: 400 }, engine: { batch: staticBudget(48) } });
  for (let i = 0; i < 12; i++) harness.submit(sequenceSpec(tokensFrom(37 * i, 20 + 30 * (i % 4)), 5 + 3 * i));
  harness.finish();
  harness.outcomes.forEach((outcome, i) => {
    const steps = harness.steps.filter((step) =>
      step.chunks.some((c) => c.sequence === i && c.samples.length > 0),
    );
    expect(steps.length).toBe(outcome.tokens.length);
    expect(steps.at(-1)!.number - steps[0]!.number).toBe(steps.length - 1);
  });
});

/** Answers step 2 with `results`, one after the other, then computes it. */
function faultyOnce(results: StepResult[]): (step: Step) => StepResult | null {
  return (step) => (step.number === 2 ? (results.shift() ?? null) : null);
}

test("a step that was not computed is started again, and changes nothing", () => {
  const retry: StepResult = { kind: "retry", reason: "busy" };
  const harness = new EngineHarness({ fault: faultyOnce([retry, retry, retry]) });
  const spec = sequenceSpec(tokensFrom(0, 20), 5);
  harness.submit(spec);
  harness.finish();
  expect(harness.outcomes[0]).toMatchObject({ tokens: tokensAlone(spec).tokens, finish: { kind: "length" } });
  expect(harness.steps.map((step) => step.number)).toEqual([1, 2, 2, 2, 2, 3, 4, 5]);
});

test("only steps of offline work are aborted for an arrival; their chunks are planned again after it", () => {
  const harness = new EngineHarness({
    fault: ({ number }) => (number === 2 ? { kind: "aborted", reason: "a chat came" } : null),
  });
  const [line, chat] = [0, 100].map((first) => sequenceSpec(tokensFrom(first, 20), 3)) as [
    ReturnType<typeof sequenceSpec>,
    ReturnType<typeof sequenceSpec>,
  ];
  const lines = [line, { ...line, promptTokens: tokensFrom(50, 20) }].map((spec) =>
    harness.submit({ ...spec, service: { ...spec.service, objective: "throughput" } }),
  );
  harness.step();
  harness.engine.run();
  harness.send("abort", lines[1]!);
  const id = harness.submit(chat);
  harness.finish();
  expect(harness.steps.slice(0, 3).map(({ isAbortable }) => isAbortable)).toEqual([true, true, false]);
  const [, given, next] = harness.steps;
  const chunkOf = (step: Step | undefined, sequence: SequenceId) =>
    step!.chunks.find((chunk) => chunk.sequence === sequence);
  expect(chunkOf(next, id)).toMatchObject({ start: 0 });
  expect(chunkOf(given, lines[0]!)).toBeDefined();
  expect(harness.outcomes[lines[0]!]!.tokens).toEqual(tokensAlone(line).tokens);
  expect(harness.outcomes[lines[1]!]!.finish).toEqual({ kind: "aborted" });
  expect(harness.outcomes[id]!.tokens).toEqual(tokensAlone(chat).tokens);
});

test("a step that cannot be computed fails its sequences, and no others", () => {
  const retries = Array.from({ length: 4 }, (): StepResult => ({ kind: "retry", reason: "no memory" }));
  const harness = new EngineHarness({
    fault: faultyOnce(retries),
    engine: { admission: { sequencesMax: 2 } },
  });
  for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(tokensFrom(100 * i, 20), 5));
  harness.step();
  harness.send("abort", 1 as never);
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.finish)).toEqual([
    { kind: "failed", reason: "no memory" },
    { kind: "aborted" },
    { kind: "length" },
  ]);
});

test("a failed row fails only its sequence, whose pages are not cached", () => {
  const fault = (step: Step): StepResult | null => {
    if (step.number !== 1) return null;
    const sampled = step.chunks.map(({ sequence }) =>
      sequence === 0
        ? ({ kind: "failed", sequence, reason: "logits not finite" } as const)
        : ({ kind: "token", sequence, token: 3, logprobs: null } as const),
    );
    return { kind: "done", sampled, deviceMs: 1 };
  };
  const harness = new EngineHarness({ fault });
  harness.submit(sequenceSpec(tokensFrom(0, 32), 5));
  harness.submit(sequenceSpec(tokensFrom(100, 20), 1));
  harness.finish();
  expect(harness.outcomes[0]!.finish).toEqual({ kind: "failed", reason: "logits not finite" });
  expect(harness.outcomes[1]!.finish).toEqual({ kind: "length" });
  expect(harness.load.pagesCached).toBe(2);
});

test("when the device is lost every sequence fails, also those submitted later", () => {
  const harness = new EngineHarness({
    fault: faultyOnce([{ kind: "lost", reason: "gone" }]),
    engine: { admission: { sequencesMax: 1 } },
  });
  for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(tokensFrom(100 * i, 20), 5));
  harness.finish();
  harness.submit(sequenceSpec(tokensFrom(0, 20), 5));
  harness.finish();
  for (const { finish } of harness.outcomes) expect(finish).toEqual({ kind: "failed", reason: "gone" });
  expect(harness.load.pagesFree + harness.load.pagesCached).toBe(harness.load.pagesTotal);
  expect(harness.engine.busy).toBe(false);
});

test("a conversation's next turn hits the previous turn in the cache, to the token", () => {
  const harness = new EngineHarness();
  const prompt = tokensFrom(0, 40);
  harness.submit(sequenceSpec(prompt, 10));
  harness.finish();
  // The last token of an answer was drawn but never computed.
  const next = [...prompt, ...harness.outcomes[0]!.tokens, 7, 8, 9];
  harness.submit(sequenceSpec(next, 5));
  harness.finish();
  expect(harness.outcomes[1]!.cachedTokens).toBe(49);
  expect(harness.outcomes[1]!.tokens).toEqual(tokensAlone(sequenceSpec(next, 5)).tokens);
  expect(harness.load).toMatchObject({
    prefixQueriedTotal: 93,
    prefixHitTotal: 49,
    generatedTokensTotal: 15,
  });
});

test("a sequence alone on the device uses all cached tokens, whatever the watermark", () => {
  const harness = new EngineHarness({ spec: { pages: 4 }, engine: { admission: { watermark: 0.9 } } });
  for (let round = 0; round < 2; round++) {
    harness.submit(sequenceSpec(tokensFrom(0, 20), 1));
    harness.finish();
  }
  expect(harness.outcomes[1]!.cachedTokens).toBe(19);
});

test("penalties count prompt tokens and each output token; without penalties nothing is counted", () => {
  const rows: { tokens: number[]; counts: number[] }[] = [];
  const fault = (step: Step): null => {
    const { seen } = step.chunks[0]!.samples[0] as SampleRow;
    if (seen === null) return null;
    const { tokens, counts, length } = seen;
    rows.push({ tokens: [...tokens.subarray(0, length)], counts: [...counts.subarray(0, length)] });
    return null;
  };
  const logitBias = [[7, 100]] as const;
  const harness = new EngineHarness({ fault });
  harness.submit(sequenceSpec([4, 5, 4], 3, { sampling: { frequencyPenalty: 0.5, logitBias } }));
  harness.finish();
  harness.submit(sequenceSpec([4, 5, 4], 3, { sampling: { logitBias } }));
  harness.finish();
  expect(rows).toEqual([
    { tokens: [4, 5], counts: [0, 0] },
    { tokens: [4, 5, 7], counts: [0, 0, 1] },
    { tokens: [4, 5, 7], counts: [0, 0, 2] },
  ]);
});

test("the last token of a bad word is banned where the output ends with the others, across preemption and loss", () => {
  const banned = (badWords: number[][], drawnTokens: number[] = []): (readonly number[])[] => {
    const rows: (readonly number[])[] = [];
    const harness = new EngineHarness({
      fault: ({ chunks }) => {
        rows.push(...chunks[0]!.samples.map((row) => (row as SampleRow).banned));
        return null;
      },
    });
    const logitBias = [[7, 100]] as const;
    harness.submit({ ...sequenceSpec([7, 7, 7], 4, { sampling: { badWords, logitBias } }), drawnTokens });
    harness.finish();
    return rows;
  };
  expect(banned([[3]])).toEqual([[3], [3], [3], [3]]);
  // The prompt is no output.
  expect(
    banned([
      [7, 3],
      [7, 7, 4],
      [7, 3],
      [5, 7, 6],
    ]),
  ).toEqual([[], [3], [3, 4], [3, 4]]);
  expect(
    banned(
      [
        [7, 3],
        [7, 7, 4],
      ],
      [7, 7],
    ),
  ).toEqual([
    [3, 4],
    [3, 4],
  ]);
});

test("the last token of a bad word is banned, but its first ones may be drawn", () => {
  const harness = new EngineHarness();
  const logitBias = [[7, 100]] as const;
  harness.submit(sequenceSpec([4, 5], 6, { sampling: { badWords: [[7, 7, 7]], logitBias } }));
  harness.finish();
  const { tokens } = harness.outcomes[0]!;
  expect(tokens.map((token) => token === 7)).toEqual([true, true, false, true, true, false]);
});

test("tokens that are forced to follow one are computed together, with what is left to draw after them", () => {
  const vocabulary = vocabularyOf(2, (token) => Uint8Array.of(97 + token));
  const { grammar } = compileConstraint({ kind: "regex", pattern: "(abbbbbbbbb)*" });
  const spec = sequenceSpec(
    tokensFrom(0, 20).map((token) => token % 2),
    21,
    { constraint: { id: "", grammar } },
  );
  const text = Array.from({ length: 21 }, (_, position) => (position % 10 === 0 ? 0 : 1));
  const chunks = (topLogprobs: number | null): number[] => {
    const harness = new EngineHarness({ vocabulary, spec: { vocabSize: 2 } });
    harness.submit({ ...spec, draftTokensMax: 0, sampling: { ...spec.sampling, topLogprobs } });
    harness.finish();
    expect(harness.outcomes[0]).toEqual({ cachedTokens: 0, tokens: text, finish: { kind: "length" } });
    return harness.steps.map((step) => step.chunks[0]!.tokens.length);
  };
  expect(chunks(null)).toEqual([20, 10, 10]);
  expect(chunks(0)).toEqual([20, ...Array(20).fill(1)]);
});

test("logprobs belong to the tokens they are reported with", () => {
  const harness = new EngineHarness();
  harness.submit(sequenceSpec(tokensFrom(0, 20), 2));
  harness.submit(sequenceSpec(tokensFrom(50, 20), 2, { sampling: { topLogprobs: 2 } }));
  harness.finish();
  const report = harness.reports.find((candidate) => candidate.tokens.length === 2)!;
  expect(report.logprobs![0]).toBeNull();
  expect(report.logprobs![1]!.top[0]!.token).toBe(report.tokens[1]!);
});

test("a sequence whose first tokens were drawn elsewhere goes on as if it had drawn them itself", () => {
  for (const options of [{}, { temperature: 1 }, { presencePenalty: 1, frequencyPenalty: 0.5 }]) {
    const spec = sequenceSpec(tokensFrom(0, 50), 30, { sampling: { seed: [3, 4], ...options } });
    const whole = tokensAlone(spec);
    for (const drawn of [1, 14, 29]) {
      const rest = tokensAlone({ ...spec, drawnTokens: whole.tokens.slice(0, drawn) });
      expect(rest.tokens).toEqual(whole.tokens.slice(drawn));
      expect(rest.finish).toEqual({ kind: "length" });
    }
  }
});

test("tokens drawn elsewhere count towards what fits, and have to be of the vocabulary", () => {
  const harness = new EngineHarness({ spec: { pages: 4 } });
  harness.submit({ ...sequenceSpec(tokensFrom(0, 40), 50), drawnTokens: tokensFrom(100, 24) });
  harness.submit({ ...sequenceSpec(tokensFrom(0, 40), 50), drawnTokens: [1000] });
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.finish?.kind)).toEqual(["rejected", "failed"]);
});

test("recall: sequences that never began are given back and forgotten, those that began stay", () => {
  const harness = new EngineHarness({ engine: { admission: { sequencesMax: 1 } } });
  const [first, second, paused] = [0, 100, 200].map((at) =>
    harness.submit(sequenceSpec(tokensFrom(at, 20), 3)),
  ) as [SequenceId, SequenceId, SequenceId];
  harness.step();
  harness.send("pause", paused);
  for (const id of [first, second, paused, 99 as SequenceId]) harness.send("recall", id);
  harness.finish();
  expect(harness.reports.flatMap(({ returned }) => returned)).toEqual([second, paused]);
  expect(harness.outcomes.map(({ finish }) => finish?.kind ?? null)).toEqual(["length", null, null]);
  expect(harness.load).toMatchObject({ waiting: 0, running: 0, paused: 0, tokensPending: 0 });
  // Its number is free again: the sender may send it back.
  harness.engine.receive({
    kind: "submit",
    sequence: { ...sequenceSpec(tokensFrom(100, 20), 3), id: second },
  });
  harness.finish();
  expect(harness.outcomes[second]!.finish).toEqual({ kind: "length" });
});

test("without a reader there are no notices, and what is cached is found all the same", () => {
  const prompt = tokensFrom(0, 64);
  const [told, silent] = [true, false].map((kvEvents) => {
    const harness = new EngineHarness({ engine: { kvEvents } });
    for (let i = 0; i < 2; i++) {
      harness.submit(sequenceSpec(prompt, 3));
      harness.finish();
    }
    return harness;
  }) as [EngineHarness, EngineHarness];
  expect(told.reports.some(({ kvEvents }) => kvEvents !== null)).toBe(true);
  expect(silent.reports.some(({ kvEvents }) => kvEvents !== null)).toBe(false);
  expect(silent.outcomes).toEqual(told.outcomes);
  expect(silent.outcomes[1]!.cachedTokens).toBe(63);
});

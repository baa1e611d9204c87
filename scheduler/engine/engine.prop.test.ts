/**
 * Random commands to an engine, in any order: the tokens are those of a device that shares no computation.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { compileConstraint } from "../../grammar/compile.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import { vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { noCache, plainAdmission, recencyCache } from "../../simulation/baselines/engine-rules.ts";
import { fixedDrafts } from "../../simulation/baselines/fixed-drafts.ts";
import { longestPrefix } from "../../simulation/baselines/policies.ts";
import { populateFast, priorityGroups } from "../../simulation/baselines/preble.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { firstCome, promptsFirst } from "../../simulation/baselines/vllm.ts";
import { sequenceSpec } from "../../simulation/factories.ts";
import {
  EngineHarness,
  FIRST_HINT,
  type HarnessOptions,
  type Outcome,
  tokensAlone,
} from "../../tests/support/engine-harness.ts";
import { oracleDrafts } from "../../tests/support/oracle-drafts.ts";
import { runs } from "../../tests/support/property.ts";
import type { Objective, SequenceId, SequenceSpec, Service } from "../core.ts";
import { publicLength } from "../fleet/public-texts.ts";
import { type LaneRules, objectives } from "../objective.ts";
import type { BatchPolicy, QueuePolicy } from "../policy.ts";
import { type AdmissionRule, servedAdmission } from "./admission-rule.ts";
import type { EngineOptions } from "./engine-options.ts";

const VOCABULARY = 2;
/** Letters as tokens, for constrained sequences. */
const vocabulary = vocabularyOf(VOCABULARY, (token) => Uint8Array.of(97 + token));
/** Texts of which long parts are forced. */
const constraints = ["(a|baabbab)*", "ab(bbbbbbbb|a)+", "aaaaaaaaaa(ab)*", "[ab]*"].map(
  (pattern): Constraint => ({
    id: pattern,
    grammar: compileConstraint({ kind: "regex", pattern }).grammar,
  }),
);

type Command =
  | {
      readonly kind: "expect";
      readonly index: number;
      readonly prompt: number[];
      readonly adapter: number;
      readonly program: number;
    }
  | { readonly kind: "forget"; readonly index: number; readonly givesUp: boolean }
  | { readonly kind: "submit"; readonly spec: Omit<SequenceSpec, "id">; readonly continues: number | null }
  | { readonly kind: "release"; readonly who: number }
  | { readonly kind: "abort" | "pause" | "resume"; readonly who: number }
  | { readonly kind: "raise"; readonly who: number; readonly service: Service }
  | { readonly kind: "step" };

interface Setting {
  readonly pages: number;
  readonly pageTokens: number;
  readonly contextMax: number;
  /** State slots; null: a model without recurrent layers. */
  readonly slots: number | null;
  readonly sharedTokensMin: number;
  readonly maskSteps: number;
  readonly queue: QueuePolicy;
  readonly batch: BatchPolicy;
  readonly admission: EngineOptions["admission"];
  readonly cache: EngineOptions["cache"];
  /** Chance that a drafted token is right; null: drafts are those that serve. */
  readonly oracle: number | null;
  readonly tier: Pick<HarnessOptions, "tier" | "host">;
}

const stepTokens = fc.integer({ min: 1, max: 24 });

/** The lanes that serve, all with other credits or another ageing time. */
function lanesOf(credits: number | null, ageingMs: number | null): Readonly<Record<Objective, LaneRules>> {
  const { latency, gang, throughput } = objectives;
  const changed = (rules: LaneRules): LaneRules => {
    return { credits: credits ?? rules.credits, ageingMs: ageingMs ?? rules.ageingMs };
  };
  return { latency: changed(latency), gang: changed(gang), throughput: changed(throughput) };
}

const queues: fc.Arbitrary<QueuePolicy> = fc.oneof(
  fc.constantFrom<QueuePolicy>(firstCome, longestPrefix),
  fc.constantFrom(1, 3, 10).map(priorityGroups),
  fc.record({
    kind: fc.constant("lanes" as const),
    lanes: fc
      .record({ isEven: fc.boolean(), ageingMs: fc.constantFrom(0, 50, null) })
      .map(({ isEven, ageingMs }) => lanesOf(isEven ? 1 : null, ageingMs)),
    tenantSlack: fc.constantFrom(1, 16, 1024),
    tenantReach: fc.constantFrom(0, 16, 1024),
  }),
);

/** On a device whose steps take 6 ms and more. */
const plainBatches: fc.Arbitrary<BatchPolicy> = fc.oneof(
  stepTokens.map(promptsFirst),
  stepTokens.map(staticBudget),
  stepTokens.map((tokens) => populateFast(tokens, 0.5)),
  fc.record({
    kind: fc.constant("time" as const),
    tbtMs: fc.constantFrom(null, 3, 6.2, 50),
    stepMs: fc.constantFrom(3, 6.2, 100),
    readingMs: fc.constantFrom(0, 20, 200),
    margin: fc.constantFrom(0, 0.1),
    starvationMs: fc.constantFrom(0, 20),
    skipsMax: fc.nat({ max: 3 }),
  }),
);

/** Half of them check drafts of so many tokens in every step. */
const batches: fc.Arbitrary<BatchPolicy> = fc.oneof(
  plainBatches,
  fc.tuple(plainBatches, fc.constantFrom(1, 2, 5, 16)).map(([batch, tokens]) => fixedDrafts(batch, tokens)),
);

/** Rule that serves, or a baseline in its place. */
function eitherOf<Name extends keyof AdmissionRule>(name: Name): fc.Arbitrary<AdmissionRule[Name]> {
  return fc.constantFrom(servedAdmission[name], plainAdmission[name]);
}

/** From tiers that answer within a step to some that take several, on a device whose pages take 0.2 ms each. */
const tiers = fc.record({
  bytesPerMs: fc.constantFrom(100, 10, 1),
  latencyMs: fc.constantFrom(0, 0.1, 8),
  copiedBytesPerMs: fc.constantFrom(10_000, 50),
  waitingPagesMax: fc.constantFrom(2, 1000),
  segmentPages: fc.constantFrom(1, 4),
  segmentsMax: fc.constantFrom(2, 1000),
  lostShare: fc.constantFrom(0, 0, 0.2),
  seed: fc.nat(),
});

/** Places in the host's memory, from fewer than a prompt has pages to more than all prompts have. */
const hosts = fc.record({
  places: fc.constantFrom(3, 12, 1000),
  bytesPerMs: fc.constantFrom(1000, 10, 1),
  latencyMs: fc.constantFrom(0, 0.1),
  beginMs: fc.constantFrom(0, 0.01),
  sendingMax: fc.constantFrom(2, 1000),
});

/** So few pages and slots that most of them are wanted by several sequences. */
const settings: fc.Arbitrary<Setting> = fc.record({
  pages: fc.integer({ min: 8, max: 16 }),
  pageTokens: fc.constantFrom(2, 3, 4),
  contextMax: fc.integer({ min: 20, max: 48 }),
  slots: fc.constantFrom(null, 1, 2, 3, 5, 8),
  sharedTokensMin: fc.integer({ min: 1, max: 8 }),
  maskSteps: fc.constantFrom(1, 3, 1000),
  queue: queues,
  batch: batches,
  admission: fc.record({
    sequencesMax: fc.constantFrom(1, 2, 4, 8, 8),
    watermark: fc.constantFrom(0, 0.1),
    rule: fc.record({
      headroom: eitherOf("headroom"),
      findInFlightPrefix: eitherOf("findInFlightPrefix"),
      promptOrder: eitherOf("promptOrder"),
      overtakable: eitherOf("overtakable"),
      backOffSteps: eitherOf("backOffSteps"),
    }),
  }),
  cache: fc.constantFrom(null, null, recencyCache, noCache),
  oracle: fc.constantFrom(null, 0, 0.5, 0.8, 1),
  tier: fc
    .record({ disk: fc.option(tiers), host: fc.option(hosts), statePages: fc.constantFrom(0, 1, 3) })
    .map(({ disk, host, statePages }) => ({
      ...(disk === null ? {} : { tier: { ...disk, statePages } }),
      ...(host === null ? {} : { host: { ...host, statePages } }),
    })),
});

const services: fc.Arbitrary<Service> = fc.record({
  objective: fc.constantFrom("latency", "latency", "gang", "throughput"),
  tenant: fc.constantFrom("", "a", "b"),
  tbtMs: fc.constantFrom(null, null, 6.5, 30),
  ttftMs: fc.constantFrom(null, null, 10, 400),
  priority: fc.constantFrom(0, 0, -1, 5),
  taskGroup: fc.constant(null),
  program: fc.option(
    fc.record({
      id: fc.nat({ max: 2 }),
      ageMs: fc.constantFrom(0, 5, 400),
      remainingMs: fc.constantFrom(0, 10, 100),
    }),
  ),
  session: fc.constantFrom(null, null, { id: 1, parent: null }, { id: 2, parent: 1 }),
});

const bit = fc.nat({ max: VOCABULARY - 1 });

/** Prompts that share much: a few common beginnings, then anything. */
const prompts = fc
  .tuple(fc.nat({ max: 2 }), fc.nat({ max: 16 }), fc.array(bit, { maxLength: 4 }))
  .map(([family, length, rest]) => [
    ...Array.from({ length }, (_, i) => ((family >> (i % 2)) & 1 ? 1 : 0)),
    ...rest,
  ]);

/** No adapter, and two that differ in their high bits alone. */
const adapters = fc.constantFrom(0, 0, 1, 1 + 2 ** 32);

const specs = fc
  .record({
    prompt: prompts,
    tokensMax: fc.integer({ min: 1, max: 24 }),
    tokensMin: fc.nat({ max: 4 }),
    stopTokens: fc.constantFrom<number[]>([], [], [1]),
    temperature: fc.constantFrom(0, 1),
    seed: fc.nat({ max: 1 }),
    presencePenalty: fc.constantFrom(0, 0, 1),
    badWords: fc.constantFrom<number[][]>(
      [],
      [],
      [[1, 1]],
      [
        [0, 1, 0],
        [1, 0],
      ],
      [[1]],
    ),
    allowedTokens: fc.constantFrom(null, null, null, Uint32Array.of(1), Uint32Array.of(3)),
    cacheSalt: fc.constantFrom("", "", "other"),
    adapter: adapters,
    service: services,
    constraint: fc.constantFrom(null, null, ...constraints),
  })
  .map(
    ({
      prompt,
      tokensMax,
      seed,
      tokensMin,
      stopTokens,
      constraint,
      cacheSalt,
      adapter,
      service,
      ...drawing
    }) =>
      withPublic(
        sequenceSpec(prompt, tokensMax, {
          sampling: { ...drawing, seed: [seed, 0] },
          stop: { tokensMin, stopTokens },
          cacheSalt,
          adapter,
          service,
          ...(constraint === null ? {} : { constraint }),
        }),
      ),
  );

/** Marks the beginning of the second family of prompts as public. */
function withPublic(spec: Omit<SequenceSpec, "id">): Omit<SequenceSpec, "id"> {
  return { ...spec, publicTokens: publicLength(spec.promptTokens, [[1, 0, 1, 0, 1, 0, 1, 0, 1]]) };
}

const commands: fc.Arbitrary<Command[]> = fc.array(
  fc.oneof(
    {
      weight: 4,
      arbitrary: fc
        .record({ spec: specs, isHeld: fc.boolean(), continues: fc.option(fc.nat({ max: 1000 })) })
        .map(
          ({ spec, isHeld, continues }): Command => ({
            kind: "submit",
            spec: { ...spec, isHeld },
            continues,
          }),
        ),
    },
    { weight: 6, arbitrary: fc.constant<Command>({ kind: "step" }) },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constantFrom("abort" as const, "pause" as const, "resume" as const),
        who: fc.nat({ max: 1000 }),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ kind: fc.constant("release" as const), who: fc.nat({ max: 1000 }) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant("raise" as const),
        who: fc.nat({ max: 1000 }),
        service: services,
      }),
    },
    {
      weight: 2,
      arbitrary: fc.record({
        kind: fc.constant("expect" as const),
        index: fc.nat({ max: 3 }),
        prompt: prompts,
        adapter: adapters,
        program: fc.nat({ max: 2 }),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constant("forget" as const),
        index: fc.nat({ max: 3 }),
        givesUp: fc.boolean(),
      }),
    },
  ),
  { maxLength: 60, size: "max" },
);

/** Carries out commands, half of them while a step is in flight, then lets everything end. */
function play(
  setting: Setting,
  script: readonly Command[],
): { harness: EngineHarness; specs: SequenceSpec[] } {
  const { pages, pageTokens, contextMax, slots, maskSteps, oracle, tier, ...engine } = setting;
  const drafts =
    oracle === null
      ? { kind: "suffix" as const }
      : oracleDrafts((spec) => aloneOf(spec, setting).tokens, oracle, VOCABULARY);
  const states = slots === null ? {} : { states: { slots, bytes: 1 } };
  const harness = new EngineHarness({
    vocabulary,
    maskSteps,
    // Steps that may be given up are, every other time.
    fault: ({ isAbortable, number }) =>
      isAbortable === true && number % 2 === 0 ? { kind: "aborted", reason: "something came" } : null,
    spec: { pages, pageTokens, contextMax, vocabSize: VOCABULARY, ...states },
    engine: { ...engine, drafts },
    ...tier,
    isStallFree: setting.batch.kind === "baseline" && setting.batch.isStallFree,
  });
  const submitted: SequenceSpec[] = [];
  const paused = new Set<SequenceId>();
  for (const command of script) {
    if (command.kind === "step") harness.step();
    else if (command.kind === "submit") {
      const { continues } = command;
      const before = continues === null ? undefined : submitted[continues % (submitted.length + 1)];
      const spec = before === undefined ? command.spec : continued(command.spec, before, harness);
      const id = harness.submit(spec);
      submitted.push({ ...spec, id });
      if (command.spec.promptTokens.length % 2 === 0) harness.engine.run();
    } else if (command.kind === "expect") {
      const { index, prompt, adapter, program } = command;
      if (setting.batch.kind === "time" && setting.cache === null)
        harness.expect(index, prompt, { adapter, program });
    } else if (command.kind === "forget") {
      harness.forget(command.index, command.givesUp);
    } else if (submitted.length > 0) {
      const { id } = submitted[command.who % submitted.length]!;
      if (command.kind === "release") {
        harness.release(id);
        continue;
      }
      if (command.kind === "raise") {
        harness.raise(id, command.service);
        continue;
      }
      harness.send(command.kind, id);
      if (command.kind === "pause") paused.add(id);
      else paused.delete(id);
    }
  }
  harness.finish();
  checkNobodyWaits(harness, paused);
  for (const id of paused) harness.send("resume", id);
  harness.finish();
  for (const { id } of submitted) harness.release(id);
  harness.finish();
  return { harness, specs: submitted };
}

/** Sequence that continues the tokens drawn so far by another. */
function continued(
  spec: Omit<SequenceSpec, "id">,
  before: SequenceSpec,
  { outcomes }: EngineHarness,
): Omit<SequenceSpec, "id"> {
  const { tokens } = outcomes[before.id]!;
  const promptTokens = [...Array.from(before.promptTokens), ...tokens, ...Array.from(spec.promptTokens)];
  const { cacheSalt, adapter, id } = before;
  return withPublic({ ...spec, promptTokens, cacheSalt, adapter, continues: id });
}

/** Paused sequences, whatever they hold, keep nobody else from ending; and the last report tells how many
 *  they are. */
function checkNobodyWaits(harness: EngineHarness, paused: ReadonlySet<SequenceId>): void {
  const open = harness.outcomes.flatMap(({ finish }, id) => (finish === null ? [id as SequenceId] : []));
  expect(open.filter((id) => !paused.has(id))).toEqual([]);
  expect(harness.reports.at(-1)?.load.paused ?? 0).toBe(open.length);
}

/** The outcome of a sequence that has a device to itself, without drafts. */
function aloneOf(spec: SequenceSpec, setting: Setting): Outcome {
  const contextMax = Math.min(setting.contextMax, setting.pages * setting.pageTokens);
  // With log probabilities each token is drawn by itself, whether it is forced or not.
  const drawn = { ...spec, sampling: { ...spec.sampling, topLogprobs: 0 } };
  return tokensAlone(drawn, { contextMax, vocabSize: VOCABULARY }, vocabulary);
}

/** Checks a sequence's outcome: the same as that of one that has a device to itself. */
function checkOutcome(spec: SequenceSpec, outcome: Outcome, setting: Setting): void {
  const alone = aloneOf(spec, setting);
  const { finish } = outcome;
  if (finish?.kind === "aborted") {
    expect(alone.tokens.slice(0, outcome.tokens.length)).toEqual(outcome.tokens);
  } else {
    expect(alone.finish).toEqual(finish);
    expect(outcome.tokens).toEqual(alone.tokens);
  }
}

test("every sequence finishes once, with the tokens it draws alone, and frees all its pages and slots", () => {
  const rule = fc.property(settings, commands, (setting, script) => {
    const { harness, specs } = play(setting, script);
    specs.forEach((spec, i) => {
      checkOutcome(spec, harness.outcomes[i]!, setting);
    });
    for (const { chunks } of harness.steps) {
      const own = chunks.filter(({ sequence }) => sequence < FIRST_HINT);
      expect(own.length).toBeLessThanOrEqual(Math.min(setting.admission.sequencesMax, setting.slots ?? 8));
      expect(chunks.length - own.length).toBeLessThanOrEqual(1);
      const tokens = chunks.reduce((sum, chunk) => sum + chunk.tokens.length, 0);
      if (setting.batch.kind !== "baseline" || !setting.batch.isStallFree) continue;
      expect(tokens).toBeLessThanOrEqual(Math.max(setting.batch.stepTokens, setting.admission.sequencesMax));
    }
    if (harness.reports.length === 0) return;
    const { waiting, running, paused, pagesFree, pagesCached, pagesTotal } = harness.load;
    expect({ waiting, running, paused }).toEqual({ waiting: 0, running: 0, paused: 0 });
    expect(pagesFree + pagesCached).toBe(pagesTotal);
    expect(harness.engine.busy).toBe(false);
  });
  fc.assert(rule, runs(250));
});

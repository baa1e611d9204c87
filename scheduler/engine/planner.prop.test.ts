/**
 * Contents of a step: stall-free batching as a property of whole runs, and the rules by which one prompt
 * overtakes another.
 */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { noCache, plainAdmission } from "../../simulation/baselines/engine-rules.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { firstCome } from "../../simulation/baselines/vllm.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";
import type { SequenceId } from "../core.ts";
import { objectives } from "../objective.ts";
import { ours } from "../policies.ts";
import { servedAdmission } from "./admission-rule.ts";

type Event =
  | { readonly kind: "submit"; readonly promptTokens: number; readonly tokensMax: number }
  | { readonly kind: "pause" | "resume"; readonly which: number }
  | { readonly kind: "step" };

const events: fc.Arbitrary<Event[]> = fc.array(
  fc.oneof(
    {
      weight: 3,
      arbitrary: fc.record({
        kind: fc.constant("submit" as const),
        promptTokens: fc.integer({ min: 1, max: 40 }),
        tokensMax: fc.integer({ min: 1, max: 6 }),
      }),
    },
    { weight: 4, arbitrary: fc.constant<Event>({ kind: "step" }) },
    {
      weight: 1,
      arbitrary: fc.record({
        kind: fc.constantFrom("pause" as const, "resume" as const),
        which: fc.nat({ max: 50 }),
      }),
    },
  ),
  { maxLength: 60, size: "max" },
);

/** A sequence as the rule sees it. */
interface Modelled {
  readonly id: number;
  left: number;
  output: number;
  isAdmitted: boolean;
  isPaused: boolean;
}

/**
 * [sequence, tokens] of each chunk of a step of `stepTokens`: every decode, then prompts by arrival, the
 * admitted ones first.
 */
function planByRule(sequences: readonly Modelled[], stepTokens: number): [number, number][] {
  const active = sequences.filter(({ isPaused, output }) => !isPaused && output > 0);
  const decodes = active.filter(({ isAdmitted, left }) => isAdmitted && left === 1);
  const prompts = active.filter(({ isAdmitted, left }) => isAdmitted && left > 1);
  const waiting = active.filter(({ isAdmitted }) => !isAdmitted);
  const chunks = decodes.map(({ id }): [number, number] => [id, 1]);
  let tokensLeft = Math.max(0, stepTokens - decodes.length);
  for (const sequence of [...prompts, ...waiting]) {
    const tokens = Math.min(sequence.left, tokensLeft);
    if (tokens === 0) break;
    sequence.isAdmitted = true;
    chunks.push([sequence.id, tokens]);
    tokensLeft -= tokens;
  }
  return chunks;
}

function shapes(harness: EngineHarness): [number, number][][] {
  return harness.steps.map(({ chunks }) => chunks.map(({ sequence, tokens }) => [sequence, tokens.length]));
}

test("every decode, then unfinished prompts, then new ones, each as much as fits, and never an empty chunk", () => {
  const rule = fc.property(events, fc.integer({ min: 1, max: 60 }), (script, stepTokens) => {
    const harness = new EngineHarness({
      spec: { pages: 4096 },
      engine: {
        queue: firstCome,
        batch: staticBudget(stepTokens),
        admission: { watermark: 0, rule: { ...plainAdmission, headroom: servedAdmission.headroom } },
        cache: noCache,
      },
      isStallFree: false,
    });
    const sequences: Modelled[] = [];
    const expected: [number, number][][] = [];
    let inFlight: [number, number][] = [];
    const plan = (): void => {
      inFlight = planByRule(sequences, stepTokens);
      if (inFlight.length > 0) expected.push(inFlight);
    };
    for (const event of script) {
      if (event.kind === "submit") {
        const { promptTokens, tokensMax } = event;
        const id = harness.submit(sequenceSpec(tokensFrom(0, promptTokens), tokensMax));
        sequences.push({ id, left: promptTokens, output: tokensMax, isAdmitted: false, isPaused: false });
      } else if (event.kind === "step") {
        harness.step();
        if (inFlight.length === 0) plan();
        for (const [id, tokens] of inFlight) {
          const sequence = sequences[id]!;
          sequence.left -= tokens;
          if (sequence.left > 0) continue;
          sequence.output -= 1;
          sequence.left = 1;
        }
        plan();
      } else if (sequences.length > 0) {
        const sequence = sequences[event.which % sequences.length]!;
        sequence.isPaused = event.kind === "pause";
        harness.send(event.kind, sequence.id as SequenceId);
      }
    }
    expect(shapes(harness)).toEqual(expected);
  });
  fc.assert(rule, runs(300));
});

test("zero_chunk_when_decodes_exceed_budget: every decode runs, and prompts get nothing instead of less", () => {
  const harness = new EngineHarness({ engine: { queue: firstCome, batch: staticBudget(2) } });
  const submit = (first: number, tokens: number): SequenceId =>
    harness.submit(sequenceSpec(tokensFrom(first, tokens), 20));
  const paused = submit(0, 1);
  submit(100, 1);
  harness.step();
  harness.send("pause", paused);
  submit(200, 1);
  for (let i = 0; i < 3; i++) harness.step();
  harness.send("resume", paused);
  const late = submit(300, 5);
  harness.finish();
  const crowded = shapes(harness).filter((chunks) => chunks.length > 2);
  expect(crowded.length).toBeGreaterThan(10);
  for (const chunks of crowded) {
    expect(chunks).toEqual([
      [0, 1],
      [1, 1],
      [2, 1],
    ]);
  }
  expect(harness.outcomes[late]!.tokens).toHaveLength(20);
});

describe("a short prompt is not held up by a long one, in steps of 16 tokens", () => {
  const lanes = ours().queue;
  const aged = { ...objectives.latency, ageingMs: 0 };

  /**
   * Computes two steps of a first prompt with `left` more tokens than they have, then others are there as
   * well. Returns the steps after those.
   */
  function play(left: number, others: readonly number[], changes: Partial<Options> = {}) {
    const { queue = lanes, stepMs = 6, objective = "latency" } = changes;
    const harness = new EngineHarness({
      engine: {
        queue,
        batch: staticBudget(16),
        admission: { rule: { ...servedAdmission, findInFlightPrefix: () => null } },
      },
      cost: { name: "even", tileTokens: 1, stepMs: () => stepMs },
    });
    harness.submit(sequenceSpec(tokensFrom(0, 32 + left), 1, { service: { objective } }));
    harness.step();
    others.forEach((tokens, i) => {
      harness.submit(sequenceSpec(tokensFrom(300 + 100 * i, tokens), 1));
    });
    harness.finish();
    return shapes(harness).slice(2);
  }

  interface Options {
    readonly queue: typeof lanes;
    readonly stepMs: number;
    readonly objective: "latency" | "throughput";
  }

  test("it goes first when it has less to compute than what is left of the other", () => {
    expect(play(100, [10])[0]).toEqual([
      [1, 10],
      [0, 6],
    ]);
    expect(play(10, [12])[0]).toEqual([
      [0, 10],
      [1, 6],
    ]);
  });

  test("of two unfinished ones the shorter goes first", () => {
    expect(play(100, [25]).slice(0, 2)).toEqual([
      [[1, 16]],
      [
        [1, 9],
        [0, 7],
      ],
    ]);
  });

  test("unless the long one has aged, or has had nothing for two seconds", () => {
    const queue = { ...lanes, lanes: { ...objectives, latency: aged } };
    expect(play(100, [9, 3], { queue })[0]).toEqual([[0, 16]]);
    expect(play(100, [9, 3], { stepMs: 2000 })[0]).toEqual([[0, 16]]);
    expect(play(100, [9, 3], { stepMs: 1999 })[0]).not.toEqual([[0, 16]]);
  });

  test("a latency prompt goes before a throughput prompt, however short and old that is", () => {
    const queue = {
      ...lanes,
      lanes: { ...objectives, throughput: { ...objectives.throughput, ageingMs: 0 } },
    };
    expect(play(4, [14], { queue, objective: "throughput" })[0]).toEqual([
      [1, 14],
      [0, 2],
    ]);
  });
});

/** Programs in virtual time: on the same executor and fleet as in the server. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { assert } from "../../base/assert.ts";
import { SeededRandom } from "../../base/random.ts";
import { type EngineId, greedySampling } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { soon } from "../../scheduler/program/factories.ts";
import type { CallSpec, ProgramPart, PromptPart } from "../../scheduler/program/spec.ts";
import type { RecordingEntry, RecordingHead } from "../../scheduler/recording/recording.ts";
import { runs } from "../../tests/support/property.ts";
import { parrot } from "../baselines/parrot.ts";
import { deviceSpec } from "../factories.ts";
import { replay } from "../recording/replay.ts";
import { type Fault, simulate } from "../simulator.ts";
import type { Answer, Arrival } from "../workload.ts";
import { allUses, type ProgramArrival, type ProgramSetup, ProgramWorkload, uniqueText } from "./programs.ts";

const ROUND_TRIP_MS = 250;
/** First tokens that are computed while the device reads its weights. */
const few = { tokens: 16, tokenMs: 0.001 };

interface Options {
  readonly setup?: Partial<ProgramSetup>;
  readonly engines?: number;
  readonly policy?: Policy;
  readonly faults?: readonly Fault[];
  readonly seed?: number;
  readonly record?: (entry: RecordingHead | RecordingEntry) => void;
  readonly pages?: number;
}

/** Programs with a log of their answers, in prompt order. */
class ToldPrograms extends ProgramWorkload {
  readonly answers: string[] = [];

  override after(arrival: Arrival, answer: Answer): readonly Arrival[] {
    this.answers.push(`${arrival.promptTokens().join()} → ${answer.tokens.join()}`);
    return super.after(arrival, answer);
  }
}

function run(programs: readonly ProgramArrival[], options: Options = {}) {
  const { setup, engines = 1, policy = ours(), faults = [], seed = 1, record, pages = 256 } = options;
  const workload = new ToldPrograms(programs, {
    name: "programs",
    sends: "graph",
    roundTripMs: [ROUND_TRIP_MS, ROUND_TRIP_MS],
    random: new SeededRandom(seed),
    expectedMs: () => 100,
    uses: allUses,
    ...setup,
  });
  const device = { profile: linearCost(5, 0.05, 1, undefined, [few]), spec: deviceSpec({ pages }) };
  const report = simulate({
    workload,
    policy,
    devices: Array.from({ length: engines }, () => device),
    seed,
    faults,
    checks: true,
    ...(record === undefined ? {} : { record }),
  });
  return { report, records: workload.records, answers: workload.answers.sort() };
}

function call(name: string, before: readonly PromptPart[], outputTokens: number): CallSpec {
  const output: PromptPart = {
    kind: "output",
    variable: name,
    transforms: [],
    sampling: greedySampling,
    tokensMax: outputTokens,
    stop: [],
  };
  return { kind: "call", name: `call-${name}`, prompt: { kind: "text", parts: [...before, output] } };
}

function text(seed: number, tokens: number): PromptPart {
  return { kind: "text", text: uniqueText(new SeededRandom(seed), tokens) };
}

function input(variable: string): PromptPart {
  return { kind: "input", variable, transforms: [] };
}

function program(part: ProgramPart, wants: readonly string[], atMs = 0): ProgramArrival {
  return { atMs, kind: "program", part, wants: Object.fromEntries(wants.map((name) => [name, soon])) };
}

const calls = [call("a", [text(1, 30)], 4), call("b", [text(2, 200), input("a")], 4)] as const;
const twoSteps: ProgramPart = { nodes: calls, variables: [] };

test("calls that wait on several engines have their heads computed on all of them", () => {
  const heads = [0, 1, 2].map((index) => call(`c${index}`, [text(10 + index, 320), input("a")], 4));
  const nodes = [call("a", [text(1, 30)], 40), ...heads];
  const part: ProgramPart = { nodes, variables: [] };
  const { report } = run([program(part, ["c0", "c1", "c2"])], { engines: 4 });
  const waiting = report.calls.slice(1);
  expect(waiting.map(({ cachedTokens }) => cachedTokens)).toEqual([320, 320, 320]);
  expect(new Set(waiting.map(({ engine }) => engine)).size).toBe(3);
});

describe("a program", () => {
  test("of two steps costs its client one round trip; by the client it costs two", () => {
    const timeOf = (sends: "graph" | "calls"): number => {
      const [record] = run([program(twoSteps, ["b"])], {
        setup: { sends, uses: { ...allUses, hints: false } },
      }).records;
      return record!.doneMs;
    };
    expect(timeOf("calls") - timeOf("graph")).toBeCloseTo(ROUND_TRIP_MS, 6);
  });

  test("has what its calls wait for computed ahead: the last prompt begins where the text before its value ends", () => {
    const nodes = [call("a", [text(1, 30)], 16), calls[1]];
    const cached = (warming: boolean): number => {
      const part = { nodes, variables: [] };
      const { report } = run([program(part, ["b"])], { setup: { uses: { ...allUses, warming } } });
      return report.calls[1]!.cachedTokens;
    };
    expect([cached(true), cached(false)]).toEqual([200, 0]);
  });

  test("computes a head that many of its calls have in common once", () => {
    const count = 8;
    const nodes = Array.from({ length: count }, (_, index) =>
      call(`m${index}`, [text(1, 160), text(10 + index, 20)], 3),
    );
    const { report } = run([program({ nodes, variables: [] }, ["m0"])]);
    // The device counts a prompt chunk of one token as a decode; the uncached tokens are the computed ones.
    const computed = report.calls.map(({ promptTokens, cachedTokens }) => promptTokens - cachedTokens);
    expect(computed.reduce((sum, tokens) => sum + tokens, 0)).toBe(160 + count * 20);
  });

  test("with an output between texts goes on from its own tokens", () => {
    const parts = [text(1, 40), ...partsOf(calls[0]).slice(1), text(2, 16), ...partsOf(calls[1]).slice(2)];
    const both: CallSpec = { kind: "call", name: "both", prompt: { kind: "text", parts } };
    const { report, records } = run([program({ nodes: [both], variables: [] }, ["a", "b"])]);
    expect(report.calls.map(({ promptTokens, cachedTokens }) => [promptTokens, cachedTokens])).toEqual([
      [40, 0],
      [40 + 4 + 16, 40 + 4 - 1],
    ]);
    expect(records).toHaveLength(1);
  });
});

function partsOf(node: CallSpec): readonly PromptPart[] {
  return node.prompt.kind === "text" ? node.prompt.parts : [];
}

/** Layers of calls that read some outputs of the layer before, with texts around them. */
const graphs: fc.Arbitrary<ProgramArrival> = fc
  .record({
    layers: fc.array(
      fc.array(
        fc.record({
          head: fc.nat({ max: 2 }),
          reads: fc.array(fc.nat(), { maxLength: 3 }),
          text: fc.nat({ max: 120 }),
          output: fc.integer({ min: 1, max: 12 }),
        }),
        { minLength: 1, maxLength: 4 },
      ),
      { minLength: 1, maxLength: 4 },
    ),
    atMs: fc.nat({ max: 2000 }),
  })
  .map(({ layers, atMs }) => {
    const nodes: CallSpec[] = [];
    layers.forEach((calls, layer) => {
      calls.forEach(({ head, reads, text: tokens, output }, index) => {
        const before = layer === 0 ? [] : layers[layer - 1]!;
        const inputs =
          before.length === 0 ? [] : reads.map((read) => input(`v${layer - 1}_${read % before.length}`));
        const own = tokens === 0 ? [] : [text(100 * layer + index, tokens)];
        nodes.push(call(`v${layer}_${index}`, [text(head, 20 * (head + 1)), ...inputs, ...own], output));
      });
    });
    const last = layers.length - 1;
    return program(
      { nodes, variables: [] },
      layers[last]!.map((_, index) => `v${last}_${index}`),
      atMs,
    );
  });

const faults: fc.Arbitrary<Fault[]> = fc.array(
  fc.record({
    atMs: fc.nat({ max: 4000 }),
    engine: fc.constantFrom(0 as EngineId, 1 as EngineId),
    kind: fc.constant("lost" as const),
    backAfterMs: fc.nat({ max: 500 }),
  }),
  { maxLength: 1 },
);

const runsOf = fc.record({
  programs: fc.array(graphs, { minLength: 1, maxLength: 4 }),
  engines: fc.constantFrom(1, 2),
  faults,
  seed: fc.nat({ max: 1000 }),
  pages: fc.constantFrom(48, 256),
  uses: fc.record({
    objectives: fc.boolean(),
    taskGroups: fc.boolean(),
    order: fc.boolean(),
    hints: fc.boolean(),
    warming: fc.boolean(),
  }),
});

test("random programs keep every promise of the scheduler, and all end, also when engines are lost", () => {
  fc.assert(
    fc.property(runsOf, ({ programs, engines, faults: lost, seed, pages, uses }) => {
      const there = lost.filter(({ engine }) => engine < engines);
      const { report, records } = run(programs, { engines, faults: there, seed, pages, setup: { uses } });
      assert(report.isComplete && report.unanswered === 0, "every call is answered");
      assert(records.length === programs.length, "every program is done");
    }),
    runs(40),
  );
});

test("a replay decides programs again, prefix hints included", () => {
  fc.assert(
    fc.property(runsOf, ({ programs, engines, faults: lost, seed, pages, uses }) => {
      const entries: RecordingEntry[] = [];
      let head: RecordingHead | null = null;
      const record = (entry: RecordingHead | RecordingEntry): void => {
        if (entry.kind === "head") head = entry;
        else entries.push(entry);
      };
      const there = lost.filter(({ engine }) => engine < engines);
      run(programs, { engines, faults: there, seed, pages, setup: { uses }, record });
      expect(replay(head!, entries)).toEqual({ divergence: null, breakdowns: [] });
    }),
    runs(25),
  );
});

test("Parrot as published runs them, too", () => {
  const { report, records } = run([program(twoSteps, ["b"])], {
    policy: parrot({ latency: 400, throughput: null }),
    engines: 2,
    setup: { uses: { ...allUses, hints: false } },
  });
  expect([report.unanswered, records.length]).toEqual([0, 1]);
});

test("an engine that is lost while programs run costs them time, and no value", () => {
  const maps = Array.from({ length: 8 }, (_, index) => call(`m${index}`, [text(10 + index, 90)], 12));
  const reads = maps.map((_, index) => input(`m${index}`));
  const part = { nodes: [...maps, call("all", reads, 12)], variables: [] };
  const programs = [0, 40].map((atMs) => program(part, ["all"], atMs));
  const options = { engines: 2, pages: 64 };
  const whole = run(programs, options);
  const [first] = whole.records;
  const lost = [0.3, 0.6, 0.9].map((share): Fault => {
    return { atMs: share * first!.doneMs, engine: 0 as EngineId, kind: "lost", backAfterMs: 20 };
  });
  for (const faults of lost.map((fault) => [fault])) {
    const broken = run(programs, { ...options, faults });
    expect(broken.answers).toEqual(whole.answers);
    expect(broken.records).toHaveLength(2);
  }
});

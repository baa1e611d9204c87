/**
 * A step's size from a target: its contents, the order in which parts give way, and the targets that streams
 * keep.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { firstCome } from "../../../simulation/baselines/vllm.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../../tests/support/engine-harness.ts";
import { runs } from "../../../tests/support/property.ts";
import type { SequenceId, Service } from "../../core.ts";
import type { CostModel } from "../../cost/cost-model.ts";
import { linearCost } from "../../cost/linear.ts";
import { objectives } from "../../objective.ts";
import { ours } from "../../policies.ts";
import type { BatchPolicy } from "../../policy.ts";
import { PaceLimits } from "./pace-limits.ts";
import { QUIET_AFTER_MS, type StepHistory } from "./size-rule.ts";
import type { Backlog, SequenceView, StepPass } from "./step-rule.ts";
import { openStepRule, TimeBudget } from "./time-budget.ts";

const { latency, gang, throughput } = objectives;

type TimePolicy = Extract<BatchPolicy, { readonly kind: "time" }>;

const policy: TimePolicy = {
  kind: "time",
  tbtMs: 100,
  stepMs: 100,
  readingMs: 200,
  margin: 0,
  starvationMs: 2000,
  skipsMax: 3,
};

/**
 * A device with tiles of 256 tokens: 10 ms, and what each begun tile takes; decodes' contexts cost as well.
 */
function tiles(tileMs: (tile: number) => number): CostModel {
  return {
    name: "tiles",
    tileTokens: 256,
    stepMs: ({ prompts, decodes, decodeContext }) => {
      const tokens = prompts.reduce((sum, prompt) => sum + prompt.tokens, decodes);
      let ms = 10 + decodeContext / 1000;
      for (let tile = 0; tile * 256 < tokens; tile++) ms += tileMs(tile);
      return ms;
    },
  };
}

const even = tiles(() => 20);

let nextId = 0;

function decode({
  skips = 0,
  ...overrides
}: Partial<SequenceView> & { readonly skips?: number } = {}): SequenceView {
  nextId += 1;
  return {
    id: nextId as SequenceId,
    objective: latency,
    tbtMs: null,
    pacing: { lastTokenMs: 0, lastChunkMs: 0, skips, advance: 1 },
    length: 100,
    isDecoding: true,
    isPaused: false,
    ...overrides,
  };
}

const many = 1_000_000;
/** The smallest step with a prompt on a device without tiles. */
const CHUNK = 16;

const backlog: Backlog = {
  countsOffline: true,
  promptTokens: 0,
  likelyTokens: 0,
  waiting: 0,
  refillTokens: Number.POSITIVE_INFINITY,
  answerTokens: 64,
  streamTokens: 0,
};

function budgetFor(
  policy: TimePolicy,
  running: readonly SequenceView[],
  costs: CostModel & { readonly margin?: number },
  nowMs: number,
  backlog: Backlog,
  tokensMax: number,
  history: StepHistory = {
    quietMs: QUIET_AFTER_MS,
    abortPoints: 1,
    offlineTileMs: Number.NEGATIVE_INFINITY,
  },
): TimeBudget {
  return new TimeBudget(policy, costs, { running, backlog, nowMs, tokensMax }, history);
}

function budgetOf(
  running: readonly SequenceView[],
  changes: Partial<TimePolicy> = {},
  costs: CostModel & { readonly margin?: number } = even,
  nowMs = 0,
  tokensMax = 2048,
): TimeBudget {
  const crowd = { ...backlog, promptTokens: 2 * many, likelyTokens: 2 * many, waiting: 100 };
  return budgetFor({ ...policy, ...changes }, running, costs, nowMs, crowd, tokensMax);
}

test("tile_step_256_264: a sliver of a tile is cut off, unless it ends the prompt", () => {
  const chunkOf = (left: number): number =>
    budgetFor(policy, [], even, 0, backlog, 264).offer(left, 0, 0, latency);
  expect([chunkOf(1000), chunkOf(300), chunkOf(264), chunkOf(260), chunkOf(256)]).toEqual([
    256, 256, 264, 260, 256,
  ]);
  const eight = Array.from({ length: 8 }, () => decode({ objective: throughput }));
  expect(budgetOf(eight, {}, even, 0, 264).offer(1000, 0, 0, latency)).toBe(248);
});

test("a small rest of all prefills is computed in one step, unless that delays more sequences than it serves", () => {
  /** Tokens of each of so many prompts, which are 300 together: a tile and a little more. */
  const chunksOf = (prompts: number, streams: readonly SequenceView[] = []): number[] => {
    const waiting = { ...backlog, promptTokens: 300, likelyTokens: 300, waiting: prompts };
    const budget = budgetFor({ ...policy, tbtMs: null }, streams, even, 0, waiting, 2048);
    return Array.from({ length: prompts }, () => {
      const count = budget.offer(300 / prompts, 0, 0, latency);
      budget.take(count, 0, latency);
      return count;
    });
  };
  expect(chunksOf(1)).toEqual([300]);
  expect(chunksOf(5)).toEqual([60, 60, 60, 60, 16]);
  const streams = (count: number): SequenceView[] => Array.from({ length: count }, () => decode());
  expect(chunksOf(1, streams(3))).toEqual([300]);
  expect(chunksOf(1, streams(10))).toEqual([246]);
});

test("a step is as large as the tightest stream's slack allows, decodes included", () => {
  expect(budgetOf([decode()]).offer(many, 0, 0, latency)).toBe(4 * 256 - 1);
  expect(budgetOf([decode(), decode({ tbtMs: 55 })]).offer(many, 0, 0, latency)).toBe(2 * 256 - 2);
  expect(budgetOf([decode()], {}, even, 40).offer(many, 0, 0, latency)).toBe(2 * 256 - 1);
  expect(budgetOf([decode()], { margin: 0.2 }, { ...even, margin: 0.3 }).offer(many, 0, 0, latency)).toBe(
    2 * 256 - 1,
  );
});

test("without streams a step fills the device's token limit; beside streams it fills the time limit", () => {
  const offline = [
    decode({ objective: gang }),
    decode({ objective: throughput, tbtMs: 1 }),
    decode({ isDecoding: false }),
  ];
  expect(budgetOf([]).offer(many, 0, 0, latency)).toBe(2048);
  expect(budgetOf(offline).offer(many, 0, 0, latency)).toBe(6 * 256 - 2);
  expect(budgetOf([decode({ objective: gang, tbtMs: 55 })]).offer(many, 0, 0, latency)).toBe(2 * 256 - 1);
  const calm = { tbtMs: null };
  expect(budgetOf(offline, calm).offer(many, 0, 0, latency)).toBe(6 * 256 - 2);
  expect(budgetOf([...offline, decode()], calm).offer(many, 0, 0, latency)).toBe(4 * 256 - 3);
  expect(budgetOf([decode()], { ...calm, stepMs: 60, readingMs: 0 }).offer(many, 0, 0, latency)).toBe(
    2 * 256 - 1,
  );
});

test("slow streams without an ITL target leave prefill half of the step time, and always one tile", () => {
  const slow = [decode({ length: 80_000 })]; // 110 ms
  expect(budgetOf(slow, { tbtMs: null }).offer(many, 0, 0, latency)).toBe(3 * 256 - 1);
  const coarse = tiles(() => 500);
  expect(budgetOf([decode()], { tbtMs: null }, coarse).offer(many, 0, 0, latency)).toBe(256 - 1);
});

test("slow streams leave prefill three quarters of the step up to reading speed, and half beyond it", () => {
  const limits = new PaceLimits(policy, even);
  const aloneMs = [20, 25, 40, 50, 80, 100, 150];
  expect(aloneMs.map((ms) => limits.untargetedMs(ms))).toEqual([100, 100, 160, 200, 200, 200, 300]);
});

test("the step size minimizes the total delay: it grows with the number of waiting prompts", () => {
  const sizeOf = (decodes: number, waiting: number, costs = even): number => {
    const streams = Array.from({ length: decodes }, () => decode());
    const crowd = { ...backlog, promptTokens: 2 * many, likelyTokens: 4000 * waiting, waiting };
    const free = { ...policy, tbtMs: null, stepMs: 1000 };
    const budget = budgetFor(free, streams, costs, 0, crowd, 2048);
    return budget.offer(4000, 0, 0, latency) + decodes;
  };
  expect([sizeOf(0, 1), sizeOf(40, 1)]).toEqual([2048, 256]);
  expect(sizeOf(40, 100)).toBeGreaterThan(1024);
  const steep = tiles((tile) => (tile < 3 ? 20 : 29));
  expect(sizeOf(40, 100, steep)).toBe(3 * 256);
});

test("the tokens left of all prefills are a candidate step size", () => {
  const budget = budgetFor(policy, [decode()], even, 0, { ...backlog, promptTokens: 130 }, 2048);
  expect(budget.offer(130, 0, 0, latency)).toBe(130);
});

test("the first prompt sets the step size, later ones fill it", () => {
  const budget = budgetOf([decode()]);
  expect(budget.offer(100, 0, 0, latency)).toBe(100);
  budget.take(100, 0, latency);
  expect(budget.offer(500, 0, 0, latency)).toBe(500);
  budget.take(500, 0, latency);
  expect(budget.offer(500, 0, 0, latency)).toBe(4 * 256 - 601);
});

test("prompts get nothing when the slack is used up, but one that starves gets a tile", () => {
  const late = budgetOf([decode()], {}, even, 80);
  expect(late.offer(many, 0, 1999, latency)).toBe(0);
  expect(late.offer(many, 0, 2000, latency)).toBe(127);
  late.take(127, 0, latency);
  expect(late.offer(many, 0, 9999, latency)).toBe(0);
});

test("throughput decodes are skipped, longest context first, no more than needed and at most skipsMax times in a row", () => {
  const stream = decode();
  const long = decode({ objective: throughput, length: 90_000 });
  const longer = decode({ objective: throughput, length: 95_000 });
  const tired = decode({ objective: throughput, length: 99_000, skips: 3 });
  const running = [stream, long, tired, longer];
  expect([...budgetOf(running, { tbtMs: 400 }).skipped]).toEqual([]);
  expect([...budgetOf(running, { tbtMs: 240 }).skipped]).toEqual([longer.id]);
  expect([...budgetOf(running, { tbtMs: 60 }).skipped]).toEqual([longer.id, long.id]);
  const rested = decode({ objective: throughput, length: 95_000, skips: 2 });
  expect([...budgetOf([stream, rested, long], { tbtMs: 130 }).skipped]).toEqual([long.id]);
});

test("skipped throughput decodes are spread over the steps, not run all in one", () => {
  let offline = Array.from({ length: 8 }, () => decode({ objective: throughput, length: 90_000 }));
  for (let step = 0; step < 12; step++) {
    const { skipped } = budgetOf([decode(), ...offline], { tbtMs: 60 });
    expect(skipped.size).toBe(6);
    offline = offline.map((one) => ({
      ...one,
      pacing: { ...one.pacing, skips: skipped.has(one.id) ? one.pacing.skips + 1 : 0 },
    }));
    expect(Math.max(...offline.map(({ pacing }) => pacing.skips))).toBeLessThanOrEqual(policy.skipsMax);
  }
});

test("a sequence is not admitted if decodes alone would then miss the ITL target", () => {
  const running = Array.from({ length: 5 }, () => decode({ length: 10_000 }));
  const next = (length: number, objective = latency): SequenceView =>
    decode({ length, objective, isDecoding: false });
  expect(budgetOf(running).admits(next(20_000), false)).toBe(true);
  expect(budgetOf(running).admits(next(20_001), false)).toBe(false);
  expect(budgetOf([]).admits(next(900_000), false)).toBe(true);
  expect(
    budgetOf([decode({ objective: throughput, length: 900_000 })]).admits(next(900_000, throughput), false),
  ).toBe(true);
  const joined = budgetOf(running);
  joined.join(next(15_000));
  expect(joined.admits(next(20_000), false)).toBe(false);
});

test("streams without a target are admitted as long as their steps are short, or not much longer than one's alone", () => {
  const calm = { tbtMs: null };
  const streams = (count: number): SequenceView[] =>
    Array.from({ length: count }, () => decode({ length: 10_000 }));
  const next = decode({ length: 10_000, isDecoding: false });
  // With 10 ms for each stream and 30 for all: nine streams take 120 ms.
  expect(budgetOf(streams(6), calm).admits(next, false)).toBe(true);
  expect(budgetOf(streams(30), calm).admits(next, false)).toBe(false);
  expect(budgetOf(streams(28), calm).admits(next, false)).toBe(true);
  expect(budgetOf(streams(30), calm).admits(decode({ ...next, objective: throughput }), false)).toBe(false);
  const offline = streams(90).map((stream) => ({ ...stream, objective: throughput }));
  expect(budgetOf(offline, calm).admits(decode({ ...next, objective: throughput }), false)).toBe(true);
});

test("throughput sequences bar further ones, but not streams nor a sequence that has starved", () => {
  const running = [decode(), decode({ objective: throughput, length: 60_000 })];
  const stream = decode({ isDecoding: false });
  const offline = decode({ objective: throughput, length: 20_000, isDecoding: false });
  expect(budgetOf(running).admits(stream, false)).toBe(true);
  expect(budgetOf(running).admits(offline, false)).toBe(false);
  expect(budgetOf(running).admits(offline, true)).toBe(true);
});

interface Call {
  readonly afterMs: number;
  readonly promptTokens: number;
  readonly tokensMax: number;
  readonly service: Partial<Service>;
}

const calls: fc.Arbitrary<Call[]> = fc.array(
  fc.record({
    afterMs: fc.nat({ max: 60 }),
    promptTokens: fc.integer({ min: 1, max: 900 }),
    tokensMax: fc.integer({ min: 1, max: 40 }),
    service: fc.record({
      objective: fc.constantFrom("latency", "latency", "gang", "throughput"),
      tbtMs: fc.constantFrom(null, 20, 50),
    }),
  }),
  { minLength: 5, maxLength: 40, size: "max" },
);

/** Plays calls on a device of 2 ms and 0.02 ms per token; returns each token's time, by call. */
function play(script: readonly Call[], batch: Partial<TimePolicy>) {
  const harness = new EngineHarness({
    spec: { pages: 4096 },
    cost: linearCost(2, 0.02),
    engine: {
      queue: ours().queue,
      batch: { ...policy, margin: 0.1, tbtMs: 30, ...batch },
      integrity: "idle",
      // A right draft would spare a step, and its time.
      drafts: { kind: "off" },
    },
    isStallFree: false,
  });
  script.forEach(({ afterMs, promptTokens, tokensMax, service }, i) => {
    harness.clock.advance(afterMs);
    harness.submit(sequenceSpec(tokensFrom(17 * i, promptTokens), tokensMax, { service }));
    harness.engine.run();
  });
  harness.finish();
  const timesMs = script.map((): number[] => []);
  for (const { chunks, endMs } of harness.traces) {
    for (const { sequence, start, count } of chunks) {
      if (start + count >= script[sequence]!.promptTokens) timesMs[sequence]!.push(endMs);
    }
  }
  return { harness, timesMs };
}

test("with known step costs every stream keeps its ITL target under any load", () => {
  const rule = fc.property(calls, (script) => {
    const { harness, timesMs } = play(script, {});
    script.forEach(({ service: { objective, tbtMs }, tokensMax }, i) => {
      expect(timesMs[i]).toHaveLength(tokensMax);
      const targetMs = objective === "throughput" ? null : (tbtMs ?? (objective === "latency" ? 30 : null));
      const gaps = timesMs[i]!.slice(1).map((timeMs, j) => timeMs - timesMs[i]![j]!);
      if (targetMs !== null) expect(Math.max(0, ...gaps)).toBeLessThanOrEqual(targetMs);
    });
    expect(harness.load.stepsOverTarget).toBe(0);
  });
  fc.assert(rule, runs(60));
});

test("throughput decodes are skipped at most three steps in a row, take turns, and draw the same tokens", () => {
  // A decode takes 1 ms: with 24 of them the stream, which came last, would wait for 26 ms.
  const harness = new EngineHarness({
    spec: { pages: 512 },
    cost: linearCost(1, 1),
    engine: { batch: { ...policy, tbtMs: 15 }, queue: firstCome },
    isStallFree: false,
  });
  const offline = Array.from({ length: 24 }, (_, i) =>
    sequenceSpec(tokensFrom(31 * i, 20), 60, { service: { objective: "throughput" } }),
  );
  for (const spec of offline) harness.submit(spec);
  for (let i = 0; i < 30; i++) harness.step();
  const stream = harness.submit(sequenceSpec(tokensFrom(900, 10), 40));
  harness.finish();

  const together = harness.traces.filter(({ chunks }) =>
    chunks.some(({ sequence, isDecode }) => sequence === stream && isDecode),
  );
  expect(together.length).toBe(39);
  expect(Math.max(...together.map(({ startMs, endMs }) => endMs - startMs))).toBeLessThanOrEqual(15);
  for (let i = 0; i < offline.length; i++) {
    const present = together.map(({ chunks }) => chunks.some(({ sequence }) => sequence === i));
    const absences = present
      .map((isIn) => (isIn ? "x" : "."))
      .join("")
      .split("x");
    expect(Math.max(...absences.slice(0, -1).map((run) => run.length))).toBeLessThanOrEqual(3);
    expect(harness.outcomes[i]!.tokens).toEqual(tokensAlone(offline[i]!).tokens);
  }
  expect(harness.load.skippedDecodesTotal).toBeGreaterThan(0);
});

test("an ITL target that cannot be met is counted as missed, and all sequences finish", () => {
  const { harness, timesMs } = play(
    Array.from({ length: 12 }, () => ({ afterMs: 0, promptTokens: 50, tokensMax: 20, service: {} })),
    { tbtMs: 1 },
  );
  expect(timesMs.map((times) => times.length)).toEqual(new Array(12).fill(20));
  expect(harness.load.stepsOverTarget).toBeGreaterThan(19);
});

test("beside streams without an ITL target, throughput prefill gets what does not slow them noticeably, or else one tile from time to time", () => {
  const calm = { tbtMs: null };
  const prompt = 1000;
  const fine = linearCost(10, 0.02);
  expect(budgetOf([], calm, fine).offer(prompt, 0, 0, throughput)).toBe(prompt);
  expect(budgetOf([decode()], calm, fine).offer(prompt, 0, 0, throughput)).toBe(2 * (CHUNK - 1));
  expect(budgetOf([decode()], calm, fine).offer(prompt, 0, 0, latency)).toBeGreaterThan(100);
  const small = linearCost(10, 0.2);
  expect(budgetOf([decode()], calm, small).offer(prompt, 0, 0, throughput)).toBe(3);
  const coarse = linearCost(10, 1);
  const history = { quietMs: 0, abortPoints: 1, offlineTileMs: 1000 };
  const waited = (waitedMs: number, nowMs: number): number => {
    const budget = budgetFor({ ...policy, ...calm }, [decode()], coarse, nowMs, backlog, 2048, history);
    const tokens = budget.offer(prompt, 0, waitedMs, throughput);
    if (tokens > 0) budget.take(tokens, 0, throughput);
    return tokens;
  };
  expect([waited(1999, 9000), waited(5000, 2999), waited(2000, 3000)]).toEqual([0, 0, CHUNK - 1]);
  // A sequence that has waited: the streams have noticed enough.
  expect([history.offlineTileMs, waited(9000, 4999), waited(9000, 5000)]).toEqual([3000, 0, CHUNK - 1]);
  expect(budgetOf([decode({ tbtMs: 55 })], calm, coarse).offer(prompt, 0, 0, throughput)).toBeGreaterThan(
    CHUNK,
  );
});

test("throughput decodes that would slow a stream are skipped, and few more are admitted", () => {
  const calm = { tbtMs: null };
  const guests = Array.from({ length: 4 }, (_, i) =>
    decode({ objective: throughput, id: (i + 10) as SequenceId }),
  );
  const costs = linearCost(10, 0.5);
  expect(budgetOf([decode(), ...guests], calm, costs).skipped.size).toBe(3);
  expect(budgetOf(guests, calm, costs).skipped.size).toBe(0);
  const admits = (...running: SequenceView[]): boolean =>
    budgetOf(running, calm, costs).admits(decode({ objective: throughput }), false);
  expect([admits(decode()), admits(decode(), ...guests), admits(...guests)]).toEqual([true, false, true]);
});

test("a lone prompt is computed in one step if two would take longer and an arrival can wait that long", () => {
  const offered = (tokens: number): number => {
    const load = {
      ...backlog,
      promptTokens: tokens,
      likelyTokens: tokens,
    };
    const budget = budgetFor({ ...policy, tbtMs: null }, [], even, 0, load, 65_536);
    return budget.offer(tokens, 0, 0, latency);
  };
  expect(offered(700)).toBe(700); // 70 ms; in two steps 50 + 30 ms
  expect(offered(2500)).toBe(2500); // 210 ms; in two steps 170 + 50 ms
  expect(offered(6000)).toBeLessThan(6000); // 490 ms
});

test("without interactive streams a task group's steps are as long as the next arrival can wait", () => {
  const crowd = { ...backlog, promptTokens: 40_000, likelyTokens: 40_000, waiting: 8 };
  const calm = { ...policy, tbtMs: null };
  const sizeIn = (
    quietMs: number,
    running: readonly SequenceView[],
    objective = gang,
    countsOffline = false,
  ): number => {
    const history = { quietMs, abortPoints: 1, offlineTileMs: 0 };
    const budget = budgetFor(calm, running, even, 0, { ...crowd, countsOffline }, 65_536, history);
    return budget.offer(40_000, 0, 0, objective);
  };
  const sizeOf = (running: readonly SequenceView[], objective = gang, countsOffline = false): number =>
    sizeIn(objective === throughput ? 60_000 : 0, running, objective, countsOffline);
  const members = Array.from({ length: 4 }, () => decode({ objective: gang }));
  const tookMs = (size: number): number =>
    even.stepMs({ prompts: [{ tokens: size, context: 0 }], decodes: 4, decodeContext: 400 });
  expect(tookMs(sizeOf(members))).toBeGreaterThan(250);
  expect(tookMs(sizeOf(members))).toBeLessThanOrEqual(400);
  // A step with one token takes 30 ms. After ten seconds without a stream: √(2 · 30 · 10,000); after a
  // minute, and after more: √(2 · 30 · 60,000).
  for (const [quietMs, mostMs] of [
    [10_000, 774],
    [60_000, 1897],
    [1e9, 1897],
    [Number.POSITIVE_INFINITY, 400],
  ] as const) {
    expect(tookMs(sizeIn(quietMs, members))).toBeLessThanOrEqual(mostMs);
    expect(tookMs(sizeIn(quietMs, members))).toBeGreaterThan(0.7 * mostMs);
  }
  expect(sizeOf([...members, decode()]) < sizeOf(members) / 2).toBe(true);
  expect(sizeOf(members, latency) < sizeOf(members)).toBe(true);
  const offline = members.map((member) => ({ ...member, objective: throughput }));
  expect(sizeOf([...offline, ...members], throughput, true) < sizeOf(members)).toBe(true);
});

test("offline work alone takes the step size with the least time per token within the next arrival's patience", () => {
  const crowd = { ...backlog, promptTokens: 40_000, likelyTokens: 40_000, waiting: 8 };
  const offline = Array.from({ length: 100 }, () => decode({ objective: throughput, length: 1000 }));
  const tokensOf = (costs: CostModel): number => {
    const budget = budgetFor({ ...policy, tbtMs: null }, offline, costs, 0, crowd, 65_536);
    return offline.length + budget.offer(40_000, 0, 0, throughput);
  };
  // Contexts take 100 ms of the 400 that others can wait for: 10 + 14 * 20 ms are the largest step, and the
  // best where each tile takes as long.
  expect(tokensOf(even)).toBe(14 * 256);
  expect(tokensOf(tiles((tile) => (tile < 8 ? 20 : 28)))).toBe(8 * 256);
  expect(tokensOf(tiles((tile) => (tile === 8 ? 24 : 20)))).toBe(14 * 256);
});

test("where freed pages limit prefill, an offline step has the size of least time per token at that refill rate", () => {
  const sizeOf = (refillTokens: number, tileMs: (tile: number) => number, decodes = 100): number => {
    const offline = Array.from({ length: decodes }, () => decode({ objective: throughput, length: 100 }));
    const crowd = { ...backlog, promptTokens: 40_000, likelyTokens: 40_000, waiting: 8, refillTokens };
    const budget = budgetFor({ ...policy, tbtMs: null }, offline, tiles(tileMs), 0, crowd, 65_536);
    return decodes + budget.offer(40_000, 0, 0, throughput);
  };
  // Any step takes 40 ms to read the weights, in which there is time for 256 tokens. Later tiles take as
  // long.
  const floor = (tile: number): number => (tile === 0 ? 30 : 40);
  expect(sizeOf(Number.POSITIVE_INFINITY, floor)).toBe(9 * 256);
  expect(sizeOf(100, floor)).toBe(256);
  expect(sizeOf(1000, floor)).toBe(4 * 256);
  // Decodes fill their tile, and the next one takes most: what prompts add takes least for each of their
  // tokens in the largest step.
  expect(sizeOf(100, (tile) => (tile < 2 ? 40 : 20), 256)).toBe(16 * 256);
});

test("offline steps are long after a minute without a stream, and short while one may return", () => {
  const rule = openStepRule({ ...policy, tbtMs: null }, deviceSpec(), linearCost(10, 0.1));
  const [pass] = rule.passes(1, 1) as [StepPass];
  const crowd = { ...backlog, promptTokens: many, likelyTokens: many, waiting: 100 };
  const offered = (running: readonly SequenceView[], nowMs: number): number =>
    pass.open({ running, backlog: crowd, nowMs, tokensMax: 65_536 }).offer(many, 0, 0, throughput);
  const long = offered([], 0);
  expect(long).toBeGreaterThan(3000);
  offered([decode()], 1000);
  expect(offered([], 2000)).toBeLessThan(1000);
  expect(offered([], 60_999)).toBeLessThan(1000);
  expect(offered([], 61_000)).toBe(long);
});

test("offline work does not split an online prompt that fits in one step", () => {
  const calm = { ...policy, tbtMs: null };
  const chat = { ...backlog, countsOffline: false, promptTokens: 300, likelyTokens: 300, waiting: 1 };
  const costs = linearCost(10, 0.6);
  const offered = (running: readonly SequenceView[]): number =>
    budgetFor(calm, running, costs, 0, chat, 2048).offer(300, 0, 0, latency);
  const due = decode({ objective: throughput, skips: policy.skipsMax });
  expect([offered([]), offered([due]), offered([due, decode({ objective: throughput })])]).toEqual([
    300, 300, 300,
  ]);
  expect(offered([decode()])).toBeLessThan(300);
});

test("few skipped offline decodes run one at a time, each at least once in skipsMax + 1 steps", () => {
  const steps = 4 * (1 + 64);
  let offline = Array.from({ length: 5 }, () => decode({ objective: throughput, length: 90_000 }));
  const came: number[] = [];
  for (let step = 0; step < steps; step++) {
    const { skipped } = budgetOf([decode(), ...offline], { tbtMs: 60, skipsMax: 64 });
    came.push(offline.length - skipped.size);
    offline = offline.map((one) => ({
      ...one,
      pacing: { ...one.pacing, skips: skipped.has(one.id) ? one.pacing.skips + 1 : 0 },
    }));
    expect(Math.max(...offline.map(({ pacing }) => pacing.skips))).toBeLessThanOrEqual(64);
  }
  expect(Math.max(...came)).toBe(1);
  expect(came.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(steps / 13 + 1);
});

test("an offline step is bounded so that a new stream waits little for its end or its next abort point", () => {
  const costs = linearCost(5, 0.1);
  const calm = { ...policy, tbtMs: null };
  const tookMs = (quietMs: number, abortPoints: number, streamTokens: number): number => {
    const crowd = { ...backlog, promptTokens: many, likelyTokens: many, waiting: 100, streamTokens };
    const history = { quietMs, abortPoints, offlineTileMs: 0 };
    const tokens = budgetFor(calm, [], costs, 0, crowd, 8192, history).offer(many, 0, 0, throughput);
    return 5 + 0.1 * tokens;
  };
  // A prompt of 2,000 tokens takes 205 ms.
  expect(tookMs(60_000, 1, 2000)).toBeGreaterThan(300);
  for (const [abortPoints, mostMs] of [
    [1, 41],
    [2, 82],
    [24, 100],
  ] as const) {
    expect(tookMs(0, abortPoints, 2000)).toBeLessThanOrEqual(mostMs);
    expect(tookMs(0, abortPoints, 2000)).toBeGreaterThan(0.7 * mostMs);
  }
  // The smallest step is computed in any case.
  expect(tookMs(0, 1, 10)).toBe(5 + 0.1 * CHUNK);
});

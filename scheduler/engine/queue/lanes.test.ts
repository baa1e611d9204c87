/** Lanes: their shares, who may pass them, and what an empty lane may keep. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { staticBudget } from "../../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { EngineHarness } from "../../../tests/support/engine-harness.ts";
import { runs } from "../../../tests/support/property.ts";
import { chatService, type Objective, type SequenceId } from "../../core.ts";
import { objectives } from "../../objective.ts";
import type { LanesPolicy } from "../../policy.ts";
import { Sequence } from "../sequence.ts";
import { ColdGate } from "./cold-gate.ts";
import { Lanes } from "./lanes.ts";

const policy: LanesPolicy = { kind: "lanes", lanes: objectives, tenantSlack: 4096, tenantReach: 0 };
const credits = { latency: 8, gang: 4, throughput: 1 };
const all: readonly Objective[] = ["latency", "gang", "throughput"];
const none: ReadonlySet<Objective> = new Set();

/** Lanes that sequences of 100 tokens wait in. */
function waitingRoom() {
  const lanes = new Lanes(policy, new ColdGate({ computeMs: () => 0, displaces: () => false }));
  let arrivals = 0;
  const add = (objective: Objective, nowMs = 0): number => {
    const service = { objective, tenant: "" };
    const spec = { ...sequenceSpec(new Int32Array(100), 1, { service }), id: arrivals as SequenceId };
    lanes.add(new Sequence(spec, arrivals, nowMs));
    arrivals += 1;
    return arrivals - 1;
  };
  /** Takes the next sequence, for so many tokens. */
  const take = (tokens = 100, passed = none): Sequence | null => {
    const nowMs = 0;
    const sequence = lanes.peek(nowMs, passed);
    if (sequence === null) return null;
    expect(lanes.peek(nowMs, passed)).toBe(sequence);
    lanes.take(sequence, tokens);
    return sequence;
  };
  return { lanes, add, take };
}

/**
 * Balances sum to zero, so the largest is not below 0. A lane gets ahead by at most the sequence that it
 * takes. A lane falls behind only when another whose balance is as large takes a sequence. The third then
 * owes at least both, so that each of the two has half a sequence at most. The lane is credited its share of
 * those tokens.
 */
test("backlogged lanes share tokens 8 : 4 : 1, whatever their sequences cost", () => {
  const costMax = 3000;
  const cost = fc.oneof(fc.integer({ min: 100, max: costMax }), fc.constantFrom(100, costMax));
  const rule = fc.property(fc.array(cost, { minLength: 3 }), (costs) => {
    const { add, take } = waitingRoom();
    for (const objective of [...all, ...all]) add(objective);
    const tokens = { latency: 0, gang: 0, throughput: 0 };
    let total = 0;
    for (let i = 0; total < 60_000; i++) {
      const cost = costs[i % costs.length]!;
      const { name } = take(cost)!.objective;
      tokens[name] += cost;
      total += cost;
      add(name);
      for (const lane of all) {
        const share = credits[lane] / 13;
        const ahead = tokens[lane] - total * share;
        expect(ahead).toBeLessThanOrEqual(costMax);
        expect(-ahead).toBeLessThanOrEqual(costMax * (1 / 2 + share));
      }
    }
  });
  fc.assert(rule, runs(10));
});

test("an empty lane's share goes to the others, and it saves up no credit", () => {
  const { add, take } = waitingRoom();
  const picks = { latency: 0, gang: 0, throughput: 0 };
  for (let i = 0; i < 90; i++) {
    add("latency");
    add("throughput");
    picks[take()!.objective.name] += 1;
  }
  expect(picks).toEqual({ latency: 80, gang: 0, throughput: 10 });
  for (let i = 0; i < 20; i++) add("gang");
  for (let i = 0; i < 13; i++) picks[take()!.objective.name] += 1;
  expect(picks.gang).toBe(4);
});

test("a lane whose turn it is can be overtaken", () => {
  const { add, take } = waitingRoom();
  for (const objective of all) add(objective);
  const takePassing = (...passed: Objective[]): Objective => take(100, new Set(passed))!.objective.name;
  expect(takePassing("latency")).toBe("gang");
  expect(takePassing("latency", "gang")).toBe("throughput");
  expect(takePassing("gang", "throughput")).toBe("latency");
  expect(take()).toBeNull();
});

const lanesOnly = { queue: policy, batch: staticBudget(512) };

test("other lanes overtake a prompt that lacks pages, until it has starved", () => {
  const run = (ageingMs: number): number[] => {
    const aged = { ...objectives.throughput, ageingMs };
    const queue = { ...policy, lanes: { ...objectives, throughput: aged } };
    const harness = new EngineHarness({
      spec: { pages: 16 },
      engine: { ...lanesOnly, queue, admission: { watermark: 0 } },
    });
    harness.submit(sequenceSpec(tokensFrom(0, 100), 60));
    harness.step();
    harness.submit(sequenceSpec(tokensFrom(300, 200), 1, { service: { objective: "throughput" } }));
    harness.step();
    for (const first of [600, 700]) harness.submit(sequenceSpec(tokensFrom(first, 20), 1));
    harness.finish();
    return [1, 2, 3].map(
      (id) => harness.steps.find((step) => step.chunks.some((c) => c.sequence === id))!.number,
    );
  };
  const [offline, ...streams] = run(1000);
  expect(streams).toEqual([4, 4]);
  expect(offline).toBeGreaterThan(40);
  // Its lane's turn comes after the first stream's.
  const [aged, before, after] = run(0);
  expect(before).toBe(4);
  expect(after).toBeGreaterThanOrEqual(aged!);
});

test("throughput sequences are preempted before streams", () => {
  const harness = new EngineHarness({
    spec: { pages: 11 },
    engine: { ...lanesOnly, admission: { watermark: 0 } },
  });
  harness.submit(sequenceSpec(tokensFrom(0, 10), 80, { service: { objective: "throughput" } }));
  harness.submit(sequenceSpec(tokensFrom(100, 10), 80));
  harness.submit(sequenceSpec(tokensFrom(200, 10), 80));
  harness.finish();
  const victims = harness.traces.flatMap(({ notes }) =>
    notes.flatMap((note) => (note.kind === "preempted" ? [note.sequence as number] : [])),
  );
  expect(victims[0]).toBe(0);
  expect(harness.outcomes.map(({ tokens }) => tokens.length)).toEqual([80, 80, 80]);
});

test("a throughput sequence raised to an online objective is served as one, waiting or running", () => {
  const harness = new EngineHarness({
    spec: { pages: 64 },
    engine: { ...lanesOnly, admission: { watermark: 0, sequencesMax: 2 } },
  });
  const offline = { service: { objective: "throughput" } } as const;
  const running = harness.submit(sequenceSpec(tokensFrom(0, 10), 40, offline));
  harness.submit(sequenceSpec(tokensFrom(50, 10), 40, offline));
  harness.step();
  const ids = [100, 200, 300].map((first) => harness.submit(sequenceSpec(tokensFrom(first, 20), 8, offline)));
  harness.raise(ids[2]!, chatService);
  harness.raise(running, chatService);
  for (let step = 0; step < 3; step++) harness.step();
  // It is online and has no room, so offline work makes some, and what runs is none any more.
  const preempted = harness.traces.flatMap(({ notes }) =>
    notes.flatMap((note) => (note.kind === "preempted" ? [note.sequence as number] : [])),
  );
  expect(preempted).toEqual([1]);
  expect(harness.outcomes.map(({ cachedTokens }) => cachedTokens !== null)).toEqual([
    true,
    true,
    false,
    false,
    true,
  ]);
  harness.finish();
  expect(harness.outcomes.map(({ tokens }) => tokens.length)).toEqual([40, 40, 8, 8, 8]);
});

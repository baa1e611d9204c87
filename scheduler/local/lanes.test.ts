/** Lanes: their shares, who is aged, and what an empty lane may keep. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { EngineHarness } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";
import { staticBudget } from "../baselines/static-budget.ts";
import type { Objective, SequenceId } from "../core.ts";
import type { QueuePolicy } from "../policy.ts";
import { sequenceSpec, tokensFrom } from "../sim/factories.ts";
import { Lanes } from "./lanes.ts";
import { Sequence } from "./sequence.ts";

const objectives: readonly Objective[] = ["latency", "gang", "throughput"];
const policy: Extract<QueuePolicy, { readonly kind: "lanes" }> = {
  kind: "lanes",
  groups: 10,
  credits: [8, 4, 1],
  tenantSlack: 4096,
};
const AGEING_MS = [10, 60, 600] as const;

/** Lanes that sequences of 100 tokens wait in; `cached` of them are cached. */
function waitingRoom(cached: (id: number) => number = () => 0) {
  const lanes = new Lanes(policy, AGEING_MS, (sequence) => cached(sequence.id));
  let arrivals = 0;
  const add = (lane: number, nowMs = 0): number => {
    const service = { objective: objectives[lane]!, tenant: "" };
    const spec = { ...sequenceSpec(new Int32Array(100), 1, { service }), id: arrivals as SequenceId };
    lanes.add(new Sequence(spec, arrivals, nowMs));
    arrivals += 1;
    return arrivals - 1;
  };
  /** Takes whose turn it is, for so many tokens. */
  const take = (tokens = 100, nowMs = 0, passed = 0): Sequence | null => {
    const sequence = lanes.peek(nowMs, passed);
    if (sequence === null) return null;
    expect(lanes.peek(nowMs, passed)).toBe(sequence);
    lanes.take(sequence, tokens);
    return sequence;
  };
  return { lanes, add, take };
}

test("lanes that always wait get tokens as 8 to 4 to 1, whatever their sequences cost", () => {
  const rule = fc.property(fc.array(fc.integer({ min: 100, max: 3000 }), { minLength: 3 }), (costs) => {
    const { add, take } = waitingRoom();
    for (const lane of [0, 0, 1, 1, 2, 2]) add(lane);
    const tokens = [0, 0, 0];
    let total = 0;
    for (let i = 0; total < 60_000; i++) {
      const cost = costs[i % costs.length]!;
      const { lane } = take(cost)!;
      tokens[lane]! += cost;
      total += cost;
      add(lane);
    }
    const off = [8, 4, 1].map((weight, lane) => Math.abs(tokens[lane]! - (total * weight) / 13));
    expect(Math.max(...off)).toBeLessThanOrEqual(3000);
  });
  fc.assert(rule, runs(10));
});

test("an empty lane's share goes to the others, and it gets nothing for it when it comes back", () => {
  const { add, take } = waitingRoom();
  const picks = [0, 0, 0];
  for (let i = 0; i < 90; i++) {
    for (const lane of [0, 2]) add(lane);
    picks[take()!.lane]! += 1;
  }
  expect(picks).toEqual([80, 0, 10]);
  for (let i = 0; i < 20; i++) add(1);
  for (let i = 0; i < 13; i++) picks[take()!.lane]! += 1;
  expect(picks[1]).toBe(4);
});

test("a lane whose turn it is can be passed", () => {
  const { add, take } = waitingRoom();
  for (const lane of [0, 1, 2]) add(lane);
  expect(take(100, 0, 0b001)?.lane).toBe(1);
  expect(take(100, 0, 0b011)?.lane).toBe(2);
  expect(take(100, 0, 0b110)?.lane).toBe(0);
  expect(take()).toBeNull();
});

test("of every four that are taken one is the oldest of those who have waited too long, whatever the steps", () => {
  const { lanes, add, take } = waitingRoom((id) => (id < 20 ? 0 : 95));
  for (let i = 0; i < 2; i++) add(2, i);
  for (let i = 0; i < 5; i++) add(0, 100);
  for (let i = 0; i < 20; i++) add(0, 650);
  const nowMs = 655;
  const picks = Array.from({ length: 9 }, (_, step) => {
    if (step % 3 === 0) lanes.beginStep();
    return take(100, nowMs)!.id as number;
  });
  expect([picks[0], picks[4], picks[8]]).toEqual([0, 1, 2]);
  expect(picks.filter((id) => id < 7)).toHaveLength(3);
});

test("no_starvation_bound: once aged, a sequence waits for four turns at most for itself and each that came before", () => {
  const rule = fc.property(
    fc.array(fc.array(fc.nat({ max: 2 }), { maxLength: 4 }), { minLength: 70, maxLength: 70 }),
    fc.integer({ min: 1, max: 5 }),
    (waves, perStep) => {
      const { lanes, add, take } = waitingRoom((id) => (id * 37) % 100);
      const waiting = new Map<number, { readonly lane: number; readonly sinceMs: number }>();
      /** By id: the turn by which it has to be taken. */
      const due = new Map<number, number>();
      let turns = 0;
      waves.forEach((wave, step) => {
        const nowMs = step * 30;
        for (const lane of wave) waiting.set(add(lane, nowMs), { lane, sinceMs: nowMs });
        lanes.beginStep();
        [...waiting].forEach(([id, { lane, sinceMs }], before) => {
          const isAged = nowMs - sinceMs > AGEING_MS[lane]!;
          if (isAged && !due.has(id)) due.set(id, turns + 4 * (before + 1));
        });
        for (let i = 0; i < perStep; i++) {
          const id = take(100, nowMs)?.id;
          if (id === undefined) break;
          turns += 1;
          expect(turns).toBeLessThanOrEqual(due.get(id) ?? turns);
          waiting.delete(id);
        }
        for (const id of waiting.keys()) expect(due.get(id) ?? turns).toBeGreaterThanOrEqual(turns);
      });
    },
  );
  fc.assert(rule, runs(10));
});

const lanesOnly = { queue: policy, batch: staticBudget(512) };

test("a prompt for which there is no room is passed by other lanes, until it has waited too long", () => {
  const run = (ageingMs: readonly [number, number, number]): number[] => {
    const harness = new EngineHarness({
      spec: { pages: 16 },
      engine: { ...lanesOnly, ageingMs, admission: { watermark: 0 } },
    });
    harness.submit(sequenceSpec(tokensFrom(0, 100), 60));
    harness.step();
    harness.submit(sequenceSpec(tokensFrom(300, 200), 1, { service: { objective: "throughput" } }));
    harness.step();
    harness.submit(sequenceSpec(tokensFrom(600, 20), 1));
    harness.finish();
    return [1, 2].map(
      (id) => harness.steps.find((step) => step.chunks.some((c) => c.sequence === id))!.number,
    );
  };
  const [bulk, stream] = run([1000, 1000, 1000]);
  expect(stream).toBe(4);
  expect(bulk).toBeGreaterThan(40);
  const [aged, waits] = run([0, 0, 0]);
  expect(waits).toBeGreaterThanOrEqual(aged!);
});

test("throughput sequences give up their pages before streams do", () => {
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

/** Preemption by recompute: whom it takes, and that it changes nothing but time. */

import { describe, expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { SequenceId } from "../core.ts";
import { objectives } from "../objective.ts";
import { backOffSteps } from "./admission-rule.ts";

/** Three sequences of one page each that all want seven, on eleven pages: the younger give way, the youngest
 *  twice. */
function crowd(options: { temperature?: number; presencePenalty?: number } = {}) {
  const specs = [0, 100, 200].map((first) =>
    sequenceSpec(tokensFrom(first, 10), 100, { sampling: { seed: [7, first], ...options } }),
  );
  const harness = new EngineHarness({ spec: { pages: 11 }, engine: { admission: { watermark: 0 } } });
  for (const spec of specs) harness.submit(spec);
  return { harness, specs };
}

const preempted = (harness: EngineHarness): string[] =>
  harness.traces.flatMap((step) =>
    step.notes.filter((note) => note.kind === "preempted").map((note) => `${step.number}:${note.sequence}`),
  );

test("preemption changes no token: greedy, sampled and with penalties", () => {
  for (const options of [{}, { temperature: 1 }, { presencePenalty: 1 }]) {
    const { harness, specs } = crowd(options);
    harness.finish();
    expect(harness.load.preemptionsTotal).toBeGreaterThan(1);
    specs.forEach((spec, i) => {
      expect(harness.outcomes[i]!.tokens).toHaveLength(100);
      expect(harness.outcomes[i]!.tokens).toEqual(tokensAlone(spec).tokens);
      expect(harness.outcomes[i]!.finish).toEqual({ kind: "length" });
    });
  }
});

test("the oldest is never preempted, and nobody twice for one step", () => {
  const { harness } = crowd();
  harness.finish();
  const victims = preempted(harness);
  expect(victims.filter((victim) => victim.endsWith(":0"))).toEqual([]);
  expect(new Set(victims).size).toBe(victims.length);
});

test("coming back is mostly a hit, and nothing but the recomputed tail is computed twice", () => {
  const { harness } = crowd();
  harness.finish();
  const computed = harness.steps
    .flatMap((step) => step.chunks)
    .reduce((sum, chunk) => sum + chunk.tokens.length, 0);
  const once = 3 * (10 + 99);
  expect(computed).toBeGreaterThan(once);
  expect(computed).toBeLessThan(once + harness.load.preemptionsTotal * 32);
});

test("no page is asked for before it is needed: decodes inside of their last page preempt nobody", () => {
  const harness = new EngineHarness({ spec: { pages: 2 }, engine: { admission: { watermark: 0 } } });
  harness.submit(sequenceSpec(tokensFrom(0, 8), 9));
  harness.engine.run();
  harness.clock.runNext();
  harness.submit(sequenceSpec(tokensFrom(100, 8), 9));
  harness.finish();
  expect(harness.load.preemptionsTotal).toBe(0);
});

test("nobody is admitted by a step that had to preempt", () => {
  const { harness } = crowd();
  for (let i = 3; i < 60; i++) {
    harness.step();
    harness.step();
    harness.submit(sequenceSpec(tokensFrom(10 * i, 10), 4));
  }
  harness.finish();
  const known = new Set<SequenceId>();
  for (const { chunks, notes } of harness.traces) {
    const isNew = chunks.some((chunk) => !known.has(chunk.sequence));
    for (const chunk of chunks) known.add(chunk.sequence);
    if (notes.some((note) => note.kind === "preempted")) expect(isNew).toBe(false);
  }
});

/** Five sequences of which the last is thrown out three times; returns right after the step that did it. */
function thrownOutThrice() {
  const specs = [0, 1, 2, 3, 4].map((i) => sequenceSpec(tokensFrom(100 * i, 10), 100));
  const harness = new EngineHarness({ spec: { pages: 9 }, engine: { admission: { watermark: 0 } } });
  for (const spec of specs) harness.submit(spec);
  const victims = (): string[] => preempted(harness).filter((victim) => victim.endsWith(":4"));
  for (let i = 0; i < 600 && victims().length < 3; i++) harness.step();
  expect(victims()).toHaveLength(3);
  return { harness, spec: specs[4]!, outAt: Number.parseInt(victims()[2]!, 10) };
}

test("a sequence preempted repeatedly backs off for some steps, even if there is room", () => {
  const { harness, spec, outAt } = thrownOutThrice();
  // Somebody small passes it meanwhile, and keeps the engine busy when the others are gone.
  harness.submit(sequenceSpec(tokensFrom(900, 5), 10));
  harness.step();
  for (const other of [0, 1, 2, 3]) harness.send("abort", other as SequenceId);
  harness.finish();
  const back = harness.steps.find(
    (step) => step.number >= outAt && step.chunks.some((c) => c.sequence === 4),
  );
  expect(back!.number).toBe(outAt + backOffSteps(3));
  expect(harness.outcomes[4]!.tokens).toEqual(tokensAlone(spec).tokens);
});

test("back-off ends when no other sequence is left", () => {
  const { harness, spec, outAt } = thrownOutThrice();
  for (const other of [0, 1, 2, 3]) harness.send("abort", other as SequenceId);
  harness.finish();
  const back = harness.steps.find(
    (step) => step.number >= outAt && step.chunks.some((c) => c.sequence === 4),
  );
  expect(back!.number).toBe(outAt + 2);
  expect(harness.outcomes[4]!.tokens).toEqual(tokensAlone(spec).tokens);
});

test("a paused sequence is preempted first, and draws the same tokens when resumed", () => {
  const specs = [sequenceSpec(tokensFrom(0, 10), 60), sequenceSpec(tokensFrom(100, 10), 60)];
  const harness = new EngineHarness({ spec: { pages: 6 }, engine: { admission: { watermark: 0 } } });
  const slow = harness.submit(specs[0]!);
  harness.submit(specs[1]!);
  for (let i = 0; i < 20; i++) harness.step();
  harness.send("pause", slow);
  harness.finish();
  expect(harness.outcomes[1]!.finish).toEqual({ kind: "length" });
  expect(preempted(harness).map((victim) => victim.split(":")[1])).toEqual(["0"]);
  expect(harness.outcomes[0]!.finish).toBeNull();
  harness.send("resume", slow);
  harness.finish();
  expect(harness.outcomes.map((outcome) => outcome.tokens)).toEqual(
    specs.map((spec) => tokensAlone(spec).tokens),
  );
});

test("paused sequences yield their slots to waiting ones", () => {
  const harness = new EngineHarness({ engine: { admission: { sequencesMax: 1 } } });
  const slow = harness.submit(sequenceSpec(tokensFrom(0, 10), 20));
  harness.step();
  harness.send("pause", slow);
  const next = harness.submit(sequenceSpec(tokensFrom(100, 10), 5));
  harness.finish();
  expect(harness.outcomes[next]!.finish).toEqual({ kind: "length" });
  expect(harness.load.paused).toBe(1);
  harness.send("abort", slow);
  harness.engine.run();
  expect(harness.outcomes[slow]!.finish).toEqual({ kind: "aborted" });
});

test("as many paused sequences are preempted at once as sequences wait for a slot", () => {
  const harness = new EngineHarness({ engine: { admission: { sequencesMax: 3 } } });
  const slow = [0, 1, 2].map((i) => harness.submit(sequenceSpec(tokensFrom(100 * i, 10), 20)));
  harness.step();
  for (const id of slow) harness.send("pause", id);
  const next = [3, 4].map((i) => harness.submit(sequenceSpec(tokensFrom(100 * i, 10), 20)));
  harness.step();
  harness.step();
  expect(next.map((id) => harness.outcomes[id]!.tokens.length > 0)).toEqual([true, true]);
  expect(harness.load).toMatchObject({ running: 3, waiting: 0, preemptionsTotal: 2 });
});

test("back-off grows from the second preemption on, and is bounded", () => {
  expect([1, 2, 3, 4, 5, 6, 7, 8, 100].map(backOffSteps)).toEqual([0, 2, 4, 8, 16, 32, 64, 64, 64]);
});

test("after a blocked sequence is aborted no paused sequence is preempted for it", () => {
  const harness = new EngineHarness({ spec: { pages: 8 }, engine: { admission: { watermark: 0 } } });
  const held = harness.submit(sequenceSpec(tokensFrom(0, 60), 20));
  harness.step();
  harness.submit(sequenceSpec(tokensFrom(100, 10), 6));
  harness.step();
  harness.send("pause", held);
  harness.step();
  const blocked = harness.submit(sequenceSpec(tokensFrom(200, 100), 2));
  harness.step();
  harness.send("abort", blocked);
  harness.finish();
  expect(harness.load).toMatchObject({ paused: 1, running: 1, preemptionsTotal: 0 });
});

test("offline sequences are preempted for an online one, which runs in the next step, and draw the same tokens afterwards", () => {
  const offline = [0, 1, 2, 3].map((i) =>
    sequenceSpec(tokensFrom(300 * i, 250), 60, { service: { objective: "throughput" } }),
  );
  const chats = [0, 1, 2, 3, 4, 5].map((i) => sequenceSpec(tokensFrom(2000 + 300 * i, 100), 6));
  const harness = new EngineHarness({ spec: { pages: 40 } });
  for (const spec of offline) harness.submit(spec);
  for (let step = 0; step < 8; step++) harness.step();
  for (const spec of chats) {
    const id = harness.submit(spec);
    for (let step = 0; step < 5; step++) harness.step();
    // The first of these was in flight.
    expect(harness.traces.at(-4)!.chunks.some(({ sequence }) => sequence === id)).toBe(true);
  }
  harness.finish();
  expect(preempted(harness).length).toBeGreaterThan(0);
  expect(harness.outcomes.map(({ tokens }) => tokens)).toEqual(
    [...offline, ...chats].map((spec) => tokensAlone(spec).tokens),
  );
});

test("an offline sequence that fits is not admitted ahead of an online one that lacks pages", () => {
  const offline = { service: { objective: "throughput" } } as const;
  const harness = new EngineHarness({ spec: { pages: 40 }, engine: { admission: { watermark: 0 } } });
  harness.submit(sequenceSpec(tokensFrom(0, 400), 60, offline));
  harness.submit(sequenceSpec(tokensFrom(1000, 100), 60));
  for (let step = 0; step < 4; step++) harness.step();
  const few = harness.submit(sequenceSpec(tokensFrom(2000, 30), 6, offline));
  const chat = harness.submit(sequenceSpec(tokensFrom(3000, 160), 6));
  harness.step();
  harness.step();
  const sequences = harness.traces.at(-1)!.chunks.map(({ sequence }) => sequence);
  expect(sequences).toContain(chat);
  expect(sequences).not.toContain(few);
});

describe("of offline work beside sequences that are awaited, more than there is room for all the time,", () => {
  /**
   * Tokens that an offline sequence has drawn by then, which is aged after so long, and how many of the
   * others were answered.
   */
  const drawn = (ageingMs: number): readonly [number, number] => {
    const lanes = { ...objectives, throughput: { ...objectives.throughput, ageingMs } };
    const queue = { kind: "lanes", lanes, tenantSlack: 4096, tenantReach: 0 } as const;
    const harness = new EngineHarness({ spec: { pages: 40 }, engine: { queue } });
    harness.submit(sequenceSpec(tokensFrom(0, 250), 30, { service: { objective: "throughput" } }));
    for (let step = 0; step < 300; step++) {
      const open = harness.outcomes.filter(({ finish }) => finish === null).length;
      for (let more = open; more < 7; more++)
        harness.submit(sequenceSpec(tokensFrom(300 * harness.outcomes.length, 150), 12));
      harness.step();
    }
    const answered = harness.outcomes.slice(1).filter(({ finish }) => finish !== null);
    return [harness.outcomes[0]!.tokens.length, answered.length];
  };

  test("one that has aged goes on to its end", () => {
    const [[aged, besideAged], [young, besideYoung]] = [drawn(200), drawn(600_000)];
    expect(aged).toBe(30);
    expect(young).toBeLessThan(10);
    expect(besideAged).toBeGreaterThan(0.8 * besideYoung);
  });
});

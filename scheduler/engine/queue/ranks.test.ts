/** Order of a tenant's sequences, by priority and by targets for the first token. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { staticBudget } from "../../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { EngineHarness } from "../../../tests/support/engine-harness.ts";
import { runs } from "../../../tests/support/property.ts";
import type { SequenceId } from "../../core.ts";
import { ours } from "../../policies.ts";
import { Sequence } from "../sequence.ts";
import { FirstCome } from "./first-come.ts";
import { Ranks } from "./ranks.ts";

interface Asked {
  readonly priority: number;
  readonly ttftMs: number | null;
}

function waiting(asked: readonly Asked[]): { ranks: Ranks; sequences: Sequence[] } {
  const ranks = new Ranks(() => new FirstCome());
  const sequences = asked.map((service, i) => {
    const sequence = new Sequence({ ...sequenceSpec([1], 1, { service }), id: i as SequenceId }, i, i);
    ranks.add(sequence);
    return sequence;
  });
  return { ranks, sequences };
}

const asked = fc.record({
  priority: fc.integer({ min: -2, max: 2 }),
  ttftMs: fc.constantFrom(null, null, 10, 50, 200),
});

test("lowest number first, then those that have waited half of their target, the most pressing first, then the others", () => {
  const rule = fc.property(fc.array(asked, { maxLength: 30 }), fc.nat({ max: 150 }), (all, nowMs) => {
    const { ranks, sequences } = waiting(all);
    const pressingMs = ({ arrivedMs, spec }: Sequence): number => {
      const fromMs = arrivedMs + (spec.service.ttftMs ?? Number.POSITIVE_INFINITY) / 2;
      return fromMs <= nowMs ? fromMs : Number.POSITIVE_INFINITY;
    };
    const expected = sequences.toSorted((a, b) => {
      const byPriority = a.spec.service.priority - b.spec.service.priority;
      if (byPriority !== 0) return byPriority;
      const [one, other] = [pressingMs(a), pressingMs(b)];
      return one === other ? a.arrival - b.arrival : one - other;
    });
    const taken: Sequence[] = [];
    for (let next = ranks.peek(nowMs); next !== null; next = ranks.peek(nowMs)) {
      ranks.take(next, 1);
      taken.push(next);
    }
    expect(taken.map(({ id }) => id)).toEqual(expected.map(({ id }) => id));
    expect(ranks.size).toBe(0);
  });
  fc.assert(rule, runs(300));
});

test("what is removed is not next, and is removed once", () => {
  const rule = fc.property(fc.array(asked, { minLength: 1, maxLength: 20 }), fc.nat(), (all, pick) => {
    const { ranks, sequences } = waiting(all);
    const gone = sequences[pick % sequences.length]!;
    expect([ranks.remove(gone), ranks.remove(gone), ranks.size]).toEqual([true, false, all.length - 1]);
    for (let next = ranks.peek(100); next !== null; next = ranks.peek(100)) {
      expect(next).not.toBe(gone);
      ranks.take(next, 1);
    }
    expect(ranks.size).toBe(0);
  });
  fc.assert(rule, runs(100));
});

test("of every four that are taken one is of a later priority, if it has waited too long", () => {
  const AGED_MS = 1000;
  const ranks = new Ranks(
    () => new FirstCome(),
    (sequence, nowMs) => nowMs - sequence.arrivedMs > AGED_MS,
  );
  const priorities = [5, 5, 9, ...Array.from({ length: 12 }, () => 0)];
  priorities.forEach((priority, i) => {
    const spec = { ...sequenceSpec([1], 1, { service: { priority } }), id: i as SequenceId };
    ranks.add(new Sequence(spec, i, i < 3 ? 0 : AGED_MS));
  });
  const taken = Array.from({ length: 13 }, () => {
    const next = ranks.peek(AGED_MS + 1)!;
    ranks.take(next, 1);
    return next.id as number;
  });
  expect([taken[0], taken[4], taken[8], taken[12]]).toEqual([0, 1, 2, 12]);
  expect(taken.filter((id) => id > 2)).toEqual([3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
});

test("whatever comes at lower numbers, one that has aged is taken at the latest with the fourth turn for each that came before it", () => {
  const AGED_MS = 20;
  const turns = fc.array(
    fc.record({ arriving: fc.array(fc.nat({ max: 3 }), { maxLength: 3 }), ms: fc.constantFrom(1, 1, 5, 40) }),
    { minLength: 20, maxLength: 120 },
  );
  const rule = fc.property(turns, (turns) => {
    const ranks = new Ranks(
      () => new FirstCome(),
      (sequence, nowMs) => nowMs - sequence.arrivedMs > AGED_MS,
    );
    /** Turns that each waiting sequence may still wait, by arrival; null: it has not aged. */
    const left = new Map<Sequence, number | null>();
    let nowMs = 0;
    let arrival = 0;
    for (const { arriving, ms } of turns) {
      nowMs += ms;
      // The lowest number never has none that waits.
      for (const priority of [0, ...arriving]) {
        const spec = { ...sequenceSpec([1], 1, { service: { priority } }), id: arrival as SequenceId };
        const sequence = new Sequence(spec, arrival, nowMs);
        arrival += 1;
        ranks.add(sequence);
        left.set(sequence, null);
      }
      let before = 0;
      for (const [sequence, turns] of left) {
        const { priority } = sequence.spec.service;
        if (priority === 0) continue;
        before += 1;
        if (turns === null && nowMs - sequence.arrivedMs > AGED_MS) left.set(sequence, 4 * before);
      }
      const next = ranks.peek(nowMs)!;
      ranks.take(next, 1);
      left.delete(next);
      for (const [sequence, turns] of left) {
        if (turns !== null) left.set(sequence, turns - 1);
        if (turns !== null) expect(turns).toBeGreaterThan(1);
      }
    }
  });
  fc.assert(rule, runs(300));
});

test("an engine starts a tenant's urgent sequences first, and keeps tenants even", () => {
  const harness = new EngineHarness({
    engine: {
      queue: ours().queue,
      batch: staticBudget(64),
    },
  });
  const submit = (first: number, tenant: string, priority: number): void => {
    harness.submit(sequenceSpec(tokensFrom(first, 64), 1, { service: { tenant, priority } }));
  };
  [0, 0, -1].forEach((priority, i) => {
    submit(100 * i, "a", priority);
  });
  submit(500, "b", 7);
  harness.finish();
  const started = harness.steps.flatMap((step) => step.chunks.map((chunk) => chunk.sequence as number));
  expect(started).toEqual([2, 3, 0, 1]);
});

/** Queue order by Preble's priority groups, with our additions. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { SequenceId } from "../../scheduler/core.ts";
import { Sequence } from "../../scheduler/engine/sequence.ts";
import { runs } from "../../tests/support/property.ts";
import { sequenceSpec } from "../factories.ts";
import { PriorityGroups } from "./priority-groups.ts";

/** Makes a queue with cached shares set by the test: `cached[i]` of the 100 prompt tokens of sequence i. */
function waitingRoom(groupCount: number, cached: number[]) {
  const groups = new PriorityGroups(groupCount, (sequence) => cached[sequence.id]!);
  const add = (index: number): void => {
    const spec = { ...sequenceSpec(new Int32Array(100), 1), id: index as SequenceId };
    groups.add(new Sequence(spec, index, 0));
  };
  for (let i = 0; i < cached.length; i++) add(i);
  const pick = (): number | null => {
    const sequence = groups.peek();
    if (sequence === null) return null;
    expect(groups.peek()).toBe(sequence);
    groups.take(sequence);
    return sequence.id;
  };
  return { groups, add, pick };
}

test("55 picks over ten full groups take 10 of the top one, 9 of the next, 1 of the last", () => {
  const cached = Array.from({ length: 10 * 20 }, (_, i) => (i % 10) * 10 + 5);
  const { pick } = waitingRoom(10, cached);
  const picks = new Array<number>(10).fill(0);
  for (let i = 0; i < 55; i++) picks[pick()! % 10]! += 1;
  expect(picks).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
});

test("one group is first come, first served", () => {
  const { pick } = waitingRoom(1, [0, 99, 50, 100, 3]);
  expect([pick(), pick(), pick(), pick(), pick(), pick()]).toEqual([0, 1, 2, 3, 4, null]);
});

test("inside a group it is first come, first served, and a full match is in the top group", () => {
  const { pick } = waitingRoom(10, [0, 100, 95, 0, 91]);
  expect([pick(), pick(), pick(), pick(), pick()]).toEqual([1, 2, 4, 0, 3]);
});

test("a sequence whose cached share has changed when its turn comes moves to its new group", () => {
  const cached = [95, 55, 95];
  const { pick } = waitingRoom(10, cached);
  cached[0] = 5;
  expect([pick(), pick(), pick()]).toEqual([2, 1, 0]);
});

test("a group that stays non-empty is served within P(P+1)/2 picks, whatever comes and goes", () => {
  const arrivals = fc.array(fc.array(fc.nat({ max: 100 }), { maxLength: 4 }), {
    minLength: 80,
    maxLength: 150,
  });
  const rule = fc.property(
    fc.integer({ min: 1, max: 10 }),
    fc.nat({ max: 100 }),
    arrivals,
    (p, always, waves) => {
      const groupOf = (hit: number): number => Math.min(p - 1, Math.floor((p * hit) / 100));
      const cached: number[] = [];
      const { add, pick } = waitingRoom(p, cached);
      const enter = (hit: number): void => {
        cached.push(hit);
        add(cached.length - 1);
      };
      for (let i = 0; i < waves.length; i++) enter(always);
      let picksSince = 0;
      for (const wave of waves) {
        wave.forEach(enter);
        picksSince += 1;
        if (groupOf(cached[pick()!]!) === groupOf(always)) picksSince = 0;
        expect(picksSince).toBeLessThan((p * (p + 1)) / 2);
      }
    },
  );
  fc.assert(rule, runs(100));
});

test("removed sequences are not picked", () => {
  const { groups, pick } = waitingRoom(10, [50, 50, 95]);
  const head = groups.peek()!;
  expect(groups.remove(head)).toBe(true);
  expect(groups.remove(head)).toBe(false);
  expect([pick(), pick(), pick()]).toEqual([0, 1, null]);
  expect(groups.size).toBe(0);
});

/** Stall-free batching as properties of one plan. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { staticPass } from "../../baselines/static-budget.ts";
import type { SequenceId } from "../../core.ts";
import { objectives } from "../../objective.ts";
import type { BudgetMember } from "./step-budget.ts";
import { type Behind, type Overtaking, type PlannedChunk, planDecodes, planPrompts } from "./step-planner.ts";

type Member = Behind & BudgetMember;

function member(behind: number, isPaused = false, objective = objectives.latency): Member {
  return {
    id: 0 as SequenceId,
    behind,
    isDecoding: behind === 1,
    isPaused,
    objective,
    computed: 0,
    length: behind,
    lastChunkMs: 0,
    tbtMs: null,
    lastTokenMs: Number.NEGATIVE_INFINITY,
    skips: 0,
  };
}

const sequence: fc.Arbitrary<Member> = fc
  .record({
    behind: fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 40 })),
    isPaused: fc.boolean(),
    objective: fc.constantFrom(...Object.values(objectives)),
  })
  .map(({ behind, isPaused, objective }) => member(behind, isPaused, objective));
const newcomer: fc.Arbitrary<Member> = fc.integer({ min: 1, max: 40 }).map((behind) => member(behind));

const view = {
  backlog: { promptTokens: 0, likelyTokens: 0, waiting: 0, answerTokens: 64 },
  nowMs: 0,
  tokensMax: 1,
};
const inOrder = { hasLanes: false, overtakes: false, isAged: () => false, nowMs: 0 };

/** A step of `stepTokens` that takes from `queue` what fits. */
function plan(
  running: readonly Member[],
  queue: Member[],
  stepTokens: number,
  hasLanes = false,
): PlannedChunk<Member>[] {
  const budget = staticPass(stepTokens).open({ ...view, running });
  const admit = (): PlannedChunk<Member> | null => {
    const next = queue[0];
    const count = next === undefined ? 0 : budget.offer(next.behind, 0, 0, next.objective);
    if (next === undefined || count === 0) return null;
    budget.take(count, 0);
    queue.shift();
    return { sequence: next, count };
  };
  const decodes = planDecodes(running, budget.skipped);
  return [...decodes, ...planPrompts(running, admit, budget, { ...inOrder, hasLanes })];
}

test("every decode, then unfinished prompts, then new ones, each as much as fits, and never an empty chunk", () => {
  const rule = fc.property(
    fc.array(sequence, { maxLength: 12, size: "max" }),
    fc.array(newcomer, { maxLength: 12, size: "max" }),
    fc.nat({ max: 30 }),
    fc.boolean(),
    (running, waiting, spare, hasLanes) => {
      const stepTokens = Math.max(1, running.length) + spare;
      const queue = [...waiting];
      const chunks = plan(running, queue, stepTokens, hasLanes);

      const active = running.filter((one) => !one.isPaused);
      const prompts = active.filter((one) => one.behind > 1);
      if (hasLanes) prompts.sort((a, b) => a.objective.precedence - b.objective.precedence);
      const order = [...active.filter((one) => one.isDecoding), ...prompts, ...waiting];
      let tokensLeft = stepTokens;
      const expected = [];
      for (const one of order) {
        const count = Math.min(one.behind, tokensLeft);
        if (count === 0) break;
        expected.push({ sequence: one, count });
        tokensLeft -= count;
      }
      expect(chunks).toEqual(expected);
      expect(waiting.length - queue.length).toBe(expected.filter((c) => waiting.includes(c.sequence)).length);
    },
  );
  fc.assert(rule, runs(500));
});

test("with a budget of all that is there, a step is Orca's: every sequence, whole", () => {
  const running = [member(1), member(30), member(1), member(7)];
  const chunks = plan(running, [member(12)], 2 + 30 + 7 + 12);
  expect(chunks.map(({ count }) => count)).toEqual([1, 1, 30, 7, 12]);
});

test("zero_chunk_when_decodes_exceed_budget: every decode runs, and prompts get nothing instead of less", () => {
  const queue = [member(5)];
  const chunks = plan([member(1), member(9), member(1), member(1)], queue, 2);
  expect(chunks.map(({ count }) => count)).toEqual([1, 1, 1]);
  expect(queue).toHaveLength(1);
});

describe("a short prompt is not held up by a long one", () => {
  /** Who is in a step of 16 tokens, by name. */
  const step = (running: readonly (Member & { readonly name: string })[], waiting: readonly Member[]) => {
    const queue = [...waiting];
    const budget = staticPass(16).open({ ...view, running });
    const admit = (overtaking: Overtaking<Member> | null): PlannedChunk<Member> | null => {
      const next = queue[0];
      if (next === undefined) return null;
      const isAllowed = overtaking === null || isBefore(next, overtaking);
      const count = isAllowed ? budget.offer(next.behind, 0, 0, next.objective) : 0;
      if (count === 0) return null;
      budget.take(count, 0);
      queue.shift();
      return { sequence: next, count };
    };
    const order = { ...inOrder, hasLanes: true, overtakes: true };
    const isAged = ({ id }: Member): boolean => id === AGED;
    return planPrompts<Member>(running, admit, budget, { ...order, isAged }).map(({ sequence, count }) => [
      (sequence as Member & { readonly name?: string }).name ?? "new",
      count,
    ]);
  };
  const isBefore = (next: Member, { prompt, isFirm, isAged }: Overtaking<Member>): boolean =>
    next.objective === prompt.objective
      ? !isFirm && !isAged && next.behind < prompt.behind
      : next.objective.precedence < prompt.objective.precedence;
  const AGED = 7 as SequenceId;
  const named = (name: string, behind: number, changes: Partial<Member> = {}) => {
    return { ...member(behind), name, ...changes };
  };

  test("it goes first when it has less to compute than what is left", () => {
    expect(step([named("long", 100)], [member(10)])).toEqual([
      ["new", 10],
      ["long", 6],
    ]);
    expect(step([named("long", 10)], [member(12)])).toEqual([
      ["long", 10],
      ["new", 6],
    ]);
  });

  test("of two unfinished ones the shorter goes first", () => {
    expect(step([named("long", 100), named("short", 9)], [])).toEqual([
      ["short", 9],
      ["long", 7],
    ]);
  });

  test("unless the long one has aged, or has had nothing for two seconds", () => {
    const aged = named("long", 100, { id: AGED });
    const patient = named("long", 100, { lastChunkMs: -2000 });
    for (const long of [aged, patient]) {
      expect(step([long, named("short", 9)], [member(3)])).toEqual([["long", 16]]);
    }
  });

  test("a latency call goes before a throughput prompt, however short that is", () => {
    const bulk = named("bulk", 4, { objective: objectives.throughput, id: AGED });
    expect(step([bulk], [member(14)])).toEqual([
      ["new", 14],
      ["bulk", 2],
    ]);
  });
});

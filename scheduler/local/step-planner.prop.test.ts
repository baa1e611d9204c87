/** Stall-free batching as properties of one plan. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { staticBudget } from "../engine-options.ts";
import type { BudgetMember } from "./step-budget.ts";
import { openBudget } from "./step-budget.ts";
import { type Behind, type PlannedChunk, planDecodes, planPrompts } from "./step-planner.ts";

type Member = Behind & BudgetMember;

function member(behind: number, isPaused = false, lane = 0): Member {
  return {
    id: 0 as SequenceId,
    behind,
    isPaused,
    lane,
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
    lane: fc.nat({ max: 2 }),
  })
  .map(({ behind, isPaused, lane }) => member(behind, isPaused, lane));
const newcomer: fc.Arbitrary<Member> = fc.integer({ min: 1, max: 40 }).map((behind) => member(behind));

/** A step of `stepTokens` that takes from `queue` what fits. */
function plan(
  running: readonly Member[],
  queue: Member[],
  stepTokens: number,
  hasLanes = false,
): PlannedChunk<Member>[] {
  const budget = openBudget(staticBudget(stepTokens), running, linearCost(1, 1), 0, 0);
  const admit = (): PlannedChunk<Member> | null => {
    const next = queue[0];
    const count = next === undefined ? 0 : budget.offer(next.behind, 0, 0);
    if (next === undefined || count === 0) return null;
    budget.take(count, 0);
    queue.shift();
    return { sequence: next, count };
  };
  const decodes = planDecodes(running, budget.skipped);
  return [...decodes, ...planPrompts(running, admit, budget, { hasLanes, nowMs: 0 })];
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
      if (hasLanes) prompts.sort((a, b) => a.lane - b.lane);
      const order = [...active.filter((one) => one.behind === 1), ...prompts, ...waiting];
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
  fc.assert(rule, { seed: 20260105, numRuns: 500 });
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

/** Stall-free batching as properties of one plan. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Behind, planChunks } from "./step-planner.ts";

const sequence: fc.Arbitrary<Behind> = fc.record({
  behind: fc.oneof(fc.constant(1), fc.integer({ min: 2, max: 40 })),
  isPaused: fc.boolean(),
});
const newcomer: fc.Arbitrary<Behind> = fc.record({
  behind: fc.integer({ min: 1, max: 40 }),
  isPaused: fc.constant(false),
});

test("every decode, then unfinished prompts, then new ones, each as much as fits, and never an empty chunk", () => {
  const rule = fc.property(
    fc.array(sequence, { maxLength: 12, size: "max" }),
    fc.array(newcomer, { maxLength: 12, size: "max" }),
    fc.nat({ max: 30 }),
    (running, waiting, spare) => {
      const stepTokens = Math.max(1, running.length) + spare;
      const queue = [...waiting];
      const chunks = planChunks(running, () => queue.shift() ?? null, stepTokens);

      const active = running.filter((member) => !member.isPaused);
      const order = [
        ...active.filter((member) => member.behind === 1),
        ...active.filter((member) => member.behind > 1),
        ...waiting,
      ];
      let tokensLeft = stepTokens;
      const expected = [];
      for (const member of order) {
        const count = Math.min(member.behind, tokensLeft);
        if (count === 0) break;
        expected.push({ sequence: member, count });
        tokensLeft -= count;
      }
      expect(chunks).toEqual(expected);
      expect(waiting.length - queue.length).toBe(expected.filter((c) => waiting.includes(c.sequence)).length);
      for (const decode of active.filter((member) => member.behind === 1)) {
        expect(chunks.some((chunk) => chunk.sequence === decode && chunk.count === 1)).toBe(true);
      }
    },
  );
  fc.assert(rule, { seed: 20260105, numRuns: 500 });
});

test("zero_chunk_when_decodes_exceed_budget: every decode runs, and prompts get nothing instead of less", () => {
  const decode = { behind: 1, isPaused: false };
  const prompt = { behind: 9, isPaused: false };
  const chunks = planChunks([decode, prompt, decode, decode], () => prompt, 2);
  expect(chunks).toEqual([decode, decode, decode].map((sequence) => ({ sequence, count: 1 })));
});

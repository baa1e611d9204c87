/** Prompt-first steps, and other policies that decide differently from ours. */

import { expect, test } from "bun:test";
import type { SequenceId } from "../../scheduler/core.ts";
import { type AdmissionRule, servedAdmission } from "../../scheduler/engine/admission-rule.ts";
import type { BatchPolicy } from "../../scheduler/policy.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import { sequenceSpec, tokensFrom } from "../factories.ts";
import { noCache, plainAdmission } from "./engine-rules.ts";
import { longestPrefix } from "./policies.ts";
import { populateFast } from "./preble.ts";
import { staticBudget } from "./static-budget.ts";
import { firstCome, promptsFirst } from "./vllm.ts";

const { findInFlightPrefix, promptOrder, overtakable } = plainAdmission;
const ownPrefixes = { ...servedAdmission, findInFlightPrefix };
const inOrder = { ...servedAdmission, promptOrder, overtakable };

/** Formats steps: "A120 B30" for a step with 120 tokens of A and 30 of B. */
function shapes(harness: EngineHarness): string[] {
  return harness.steps.map(({ chunks }) =>
    chunks.map(({ sequence, tokens }) => String.fromCharCode(65 + sequence) + tokens.length).join(" "),
  );
}

function play(batch: BatchPolicy, prompts: readonly number[], late: readonly number[] = []): EngineHarness {
  const harness = new EngineHarness({
    spec: { pages: 256, stepTokensMax: 512 },
    engine: { queue: firstCome, batch, admission: { sequencesMax: 4, rule: inOrder } },
    isStallFree: false,
  });
  prompts.forEach((count, i) => {
    harness.submit(sequenceSpec(tokensFrom(100 * i, count), 3));
  });
  harness.step();
  harness.step();
  late.forEach((count, i) => {
    harness.submit(sequenceSpec(tokensFrom(500 + 100 * i, count), 2));
  });
  harness.finish();
  return harness;
}

test("prompts wait for no decode, and decodes for every prompt that can be admitted", () => {
  const harness = play(promptsFirst(200), [120, 60, 50], [90]);
  expect(shapes(harness)).toEqual(["A120 B60", "C50", "A1 B1 C1", "D90", "A1 B1 C1 D1"]);
});

test("one prompt is always in a step of prompts, if need be cut to what the device can hold", () => {
  const harness = play(promptsFirst(100), [300, 700, 20]);
  expect(shapes(harness)).toEqual(["A300", "B512", "B188", "C20", "A1 B1 C1", "A1 B1 C1"]);
  harness.outcomes.forEach(({ tokens }, i) => {
    const spec = sequenceSpec(tokensFrom(100 * i, [300, 700, 20][i]!), 3);
    expect(tokens).toEqual(tokensAlone(spec).tokens);
  });
});

test("chunks give way to whole prompts while more than a share of the pages is available", () => {
  const harness = play(populateFast(64, 0.9), [320, 100]);
  // 256 pages: 236 are free beside A's 20, and 226 beside 30, which is less than nine tenths, until A ends.
  expect(shapes(harness).slice(0, 3)).toEqual(["A320 B100", "A1 B1", "A1 B1"]);
  const crowded = play(populateFast(64, 0.9), [480, 100], [100]);
  expect(shapes(crowded).slice(0, 4)).toEqual(["A480", "A1 B63", "A1 B37", "C100"]);
});

test("without a cache nothing is found again, and all pages come back", () => {
  const harness = new EngineHarness({ engine: { admission: { rule: ownPrefixes }, cache: noCache } });
  for (let i = 0; i < 3; i++) harness.submit(sequenceSpec(tokensFrom(0, 100), 4));
  harness.finish();
  expect(harness.outcomes.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0, 0]);
  expect(harness.load.pagesFree).toBe(harness.load.pagesTotal);
  expect(harness.outcomes[2]!.tokens).toEqual(tokensAlone(sequenceSpec(tokensFrom(0, 100), 4)).tokens);
});

test("without waiting for prefixes, equal prompts are computed side by side", () => {
  const harness = new EngineHarness({
    engine: { batch: staticBudget(512), admission: { rule: ownPrefixes } },
  });
  for (let i = 0; i < 2; i++) harness.submit(sequenceSpec(tokensFrom(0, 200), 1));
  harness.finish();
  expect(shapes(harness)).toEqual(["A200 B200"]);
});

test("without headroom every page may be given away", () => {
  const admitted = ({ headroom }: AdmissionRule): number => {
    const harness = new EngineHarness({
      spec: { pages: 8 },
      engine: {
        batch: staticBudget(512),
        admission: { rule: { ...servedAdmission, headroom }, watermark: 0 },
      },
    });
    for (let i = 0; i < 2; i++) harness.submit(sequenceSpec(tokensFrom(100 * i, 60), 2));
    harness.step();
    return harness.steps[0]!.chunks.length;
  };
  expect([admitted(servedAdmission), admitted(plainAdmission)]).toEqual([1, 2]);
});

test("the longest cached prefix goes first, compared once per step, ties by arrival", () => {
  const harness = new EngineHarness({
    spec: { pages: 256 },
    engine: {
      queue: longestPrefix,
      batch: staticBudget(2048),
      admission: { sequencesMax: 1, rule: ownPrefixes },
    },
  });
  harness.submit(sequenceSpec(tokensFrom(0, 400), 1));
  harness.finish();
  const prompts = [
    tokensFrom(700, 100),
    [...tokensFrom(0, 64), ...tokensFrom(900, 50)],
    [...tokensFrom(0, 320), ...tokensFrom(800, 50)],
    tokensFrom(600, 100),
    [...tokensFrom(0, 64), ...tokensFrom(950, 40)],
  ];
  for (const prompt of prompts) harness.submit(sequenceSpec(prompt, 1));
  harness.finish();
  const order = harness.steps.slice(1).map(({ chunks }) => chunks[0]!.sequence as SequenceId as number);
  expect(order).toEqual([3, 2, 5, 1, 4]);
});

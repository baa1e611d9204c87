/** Recurrent states by example: where checkpoints are, and what begins from them. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { SequenceId } from "../core.ts";

const recurrent = (slots: number): EngineHarness =>
  new EngineHarness({ spec: { pages: 256, states: { slots, bytes: 1 } } });

/** Runs a prompt to its end; returns its cached tokens and its output. */
function run(harness: EngineHarness, prompt: readonly number[], tokensMax = 20) {
  const id = harness.submit(sequenceSpec(prompt, tokensMax));
  harness.finish();
  const { cachedTokens, tokens } = harness.outcomes[id]!;
  expect(tokens).toEqual(tokensAlone(sequenceSpec(prompt, tokensMax)).tokens);
  return { cachedTokens, tokens };
}

test("the next turn begins where the answer ended, and the same prompt at its last page border", () => {
  const harness = recurrent(16);
  const prompt = tokensFrom(0, 100);
  const { tokens } = run(harness, prompt);
  // The last drawn token is not computed.
  expect(run(harness, [...prompt, ...tokens, 7, 8]).cachedTokens).toBe(119);
  expect(run(harness, prompt).cachedTokens).toBe(96);
});

test("the second reader of a prefix leaves a checkpoint at its end for the third", () => {
  const harness = recurrent(16);
  const shared = tokensFrom(0, 100);
  const cachedOf = (own: number): number | null =>
    run(harness, [...shared, ...tokensFrom(own, 40)]).cachedTokens;
  expect([cachedOf(500), cachedOf(600), cachedOf(700)]).toEqual([0, 0, 96]);
});

test("behind a long text, the second reader begins near the end of the first one's prompt", () => {
  const harness = recurrent(16);
  const text = tokensFrom(0, 1000);
  run(harness, [...text, ...tokensFrom(500, 40)]);
  expect(run(harness, [...text, ...tokensFrom(600, 40)]).cachedTokens).toBe(960);
});

test("equal prompts at once are computed once, and begin from one checkpoint", () => {
  const harness = recurrent(16);
  const prompt = tokensFrom(0, 200);
  const ids = [0, 1, 2].map(() => harness.submit(sequenceSpec(prompt, 5)));
  harness.finish();
  expect(ids.map((id) => harness.outcomes[id]!.cachedTokens)).toEqual([0, 192, 192]);
});

test("a preempted sequence resumes from its own state", () => {
  const spec = { pages: 8, states: { slots: 4, bytes: 1 } };
  const harness = new EngineHarness({ spec, engine: { admission: { watermark: 0 } } });
  const prompts = [tokensFrom(0, 40), tokensFrom(500, 40)];
  const ids = prompts.map((prompt) => harness.submit(sequenceSpec(prompt, 40)));
  harness.finish();
  expect(harness.load.preemptionsTotal).toBeGreaterThan(0);
  ids.forEach((id, i) => {
    expect(harness.outcomes[id]!.tokens).toEqual(tokensAlone(sequenceSpec(prompts[i]!, 40)).tokens);
  });
});

test("the state of a held sequence is not evicted by many others", () => {
  const harness = recurrent(3);
  const prompt = tokensFrom(0, 50);
  const held = harness.submit(sequenceSpec(prompt, 5, { isHeld: true }));
  harness.finish();
  for (let i = 1; i < 6; i++) run(harness, tokensFrom(100 * i, 60));
  const continued = [...prompt, ...harness.outcomes[held]!.tokens, 7];
  const next = harness.submit(sequenceSpec(continued, 5, { continues: held as SequenceId }));
  harness.finish();
  expect(harness.outcomes[next]!.cachedTokens).toBe(54);
});

test("as many sequences run as there are slots, and their ends are kept", () => {
  const harness = recurrent(2);
  for (let i = 0; i < 6; i++) harness.submit(sequenceSpec(tokensFrom(100 * i, 30), 10));
  harness.finish();
  expect(Math.max(...harness.steps.map(({ chunks }) => chunks.length))).toBe(2);
  expect(harness.outcomes.every(({ finish }) => finish?.kind === "length")).toBe(true);
  expect(harness.load).toMatchObject({ statesTotal: 2, statesFree: 0, checkpoints: 2 });
});

/** A lower tier for recurrent states: a checkpoint is stored with its pages, and a prompt resumes from it. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, type HarnessOptions, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";

type Tier = NonNullable<HarnessOptions["tier"]>;

/** A page or a piece takes 0.1 ms; to compute a page takes 16 × 0.2 ms. */
const fast: Tier = {
  statePages: 5,
  bytesPerMs: 10,
  latencyMs: 1,
  copiedBytesPerMs: 1000,
  waitingPagesMax: 1000,
  segmentPages: 64,
  segmentsMax: 100,
  lostShare: 0,
  seed: 1,
};
const cost = linearCost(6, 0.2);

function harnessOf(tier: Partial<Tier> = {}, slots = 8, pages = 32): EngineHarness {
  const spec = { pages, states: { slots, bytes: 1 } };
  return new EngineHarness({ spec, cost, isStallFree: false, tier: { ...fast, ...tier } });
}

/** Runs a prompt to its end, checks what was drawn, and returns its tokens that were found. */
function run(harness: EngineHarness, prompt: readonly number[], changes: object = {}) {
  const spec = { ...sequenceSpec(prompt, 2), ...changes };
  const id = harness.submit(spec);
  harness.finish();
  expect(harness.outcomes[id]!.tokens).toEqual(tokensAlone(spec).tokens);
  const { cachedTokens, tierTokens } = harness.outcomes[id]!;
  return { cachedTokens, tierTokens };
}

const document = tokensFrom(0, 320);
const prompt = [...document, 700];
const other = tokensFrom(400, 500);

test("an idle engine stores the checkpoint at a prompt's last page border with the pages before it", () => {
  const harness = harnessOf();
  run(harness, prompt);
  expect(harness.tier!.size).toBe(20 + 5);
  expect(harness.load.tierStoredPagesTotal).toBe(25);
  expect(harness.engine.wakeMs).toBeNull();
});

test("a prompt whose pages and checkpoints were evicted begins from the tier's", () => {
  const harness = harnessOf();
  run(harness, prompt);
  run(harness, other);
  expect(run(harness, prompt)).toEqual({ cachedTokens: 320, tierTokens: 320 });
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
});

test("a state is loaded where the cache lost it alone", () => {
  const harness = harnessOf({}, 2, 200);
  run(harness, prompt);
  for (let first = 500; first < 900; first += 100) run(harness, tokensFrom(first, 320));
  expect(run(harness, prompt)).toEqual({ cachedTokens: 320, tierTokens: 320 });
  expect(harness.load.tierLoadedPagesTotal).toBe(1);
});

test("the next turn finds the end of the last prompt, and leaves a checkpoint at its own end", () => {
  const harness = harnessOf({}, 8, 64);
  run(harness, prompt);
  run(harness, tokensFrom(100, 1000));
  const second = [...prompt, ...tokensFrom(600, 60)];
  expect(run(harness, second)).toEqual({ cachedTokens: 320, tierTokens: 320 });
  run(harness, tokensFrom(100, 1000));
  const third = [...second, ...tokensFrom(800, 60)];
  expect(run(harness, third)).toEqual({ cachedTokens: 368, tierTokens: 368 });
});

test("sequences that want the same state cause one load", () => {
  const harness = harnessOf({}, 8, 63);
  run(harness, prompt);
  run(harness, tokensFrom(200, 1000));
  const ids = [700, 701, 702].map((last) => harness.submit(sequenceSpec([...document, last], 2)));
  harness.finish();
  expect(ids.map((id) => harness.outcomes[id]!.cachedTokens)).toEqual([320, 320, 320]);
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
});

test("a sequence that leaves a load before its end does not wait for it", () => {
  const harness = harnessOf({ latencyMs: 40 }, 8, 63);
  run(harness, prompt);
  run(harness, tokensFrom(200, 1000));
  const whole = harness.submit(sequenceSpec(prompt, 2));
  harness.engine.run();
  const part = harness.submit(sequenceSpec([...document.slice(0, 200), 900], 2));
  harness.finish();
  expect(harness.outcomes[whole]!.cachedTokens).toBe(320);
  expect(harness.outcomes[part]!.cachedTokens).toBe(0);
});

test("a lost piece is a miss, and the prompt is computed", () => {
  const harness = harnessOf({ statePages: 40, lostShare: 0.1, seed: 2 });
  run(harness, prompt);
  run(harness, other);
  expect(run(harness, prompt)).toMatchObject({ cachedTokens: 0 });
  expect(harness.load.tierShortLoadsTotal).toBe(1);
});

test("a load ahead leaves room for itself behind the last checkpoint of its prefix", () => {
  const spec = { pages: 30, states: { slots: 2, bytes: 1 } };
  const engine = { admission: { sequencesMax: 1 } };
  for (let tokens = 100; tokens < 350; tokens += 16) {
    const harness = new EngineHarness({ spec, cost, engine, isStallFree: false, tier: fast });
    run(harness, prompt);
    run(harness, tokensFrom(350, 90));
    harness.submit(sequenceSpec(tokensFrom(720, tokens), 40));
    harness.step();
    const id = harness.submit(sequenceSpec(prompt, 2));
    harness.finish();
    expect(harness.outcomes[id]!.tokens).toEqual(tokensAlone(sequenceSpec(prompt, 2)).tokens);
  }
});

test("nothing is stored where a load takes longer than the computation", () => {
  const harness = harnessOf({ statePages: 700 });
  run(harness, prompt);
  expect(harness.tier!.size).toBe(0);
});

test("checkpoints are stored no more when others of their kind were not read", () => {
  // A load takes a little less time than the computation, so that a store pays at high chances only.
  const harness = harnessOf({ bytesPerMs: 1 / 1.6 });
  const sizes: number[] = [];
  for (let first = 0; first < 40; first += 1) {
    run(harness, tokensFrom(20 * first, 321));
    sizes.push(harness.tier!.size);
  }
  expect(sizes[0]).toBe(25);
  expect(sizes[39]).toBe(sizes[38]);
});

test("keys share no state on the tier but that after public text", () => {
  const harness = harnessOf();
  const as = (cacheSalt: string) => ({ cacheSalt, publicTokens: 64 });
  run(harness, prompt, as("a"));
  run(harness, other);
  expect(run(harness, prompt, as("b")).cachedTokens).toBe(64);
  run(harness, other);
  expect(run(harness, prompt, as("a")).cachedTokens).toBe(320);
});

test("a sequence that is aborted during its load leaves pages and checkpoint to the cache", () => {
  const harness = harnessOf({ latencyMs: 20 });
  run(harness, prompt);
  run(harness, other);
  const id = harness.submit(sequenceSpec(prompt, 2));
  harness.engine.run();
  harness.send("abort", id as SequenceId);
  harness.finish();
  expect(harness.outcomes[id]!.finish).toEqual({ kind: "aborted" });
  expect(run(harness, prompt)).toEqual({ cachedTokens: 320, tierTokens: undefined });
});

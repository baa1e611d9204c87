/** A lower tier for recurrent states: a checkpoint is stored with its pages, and a prompt resumes from it. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { type EngineHarness, tokensAlone } from "../../tests/support/engine-harness.ts";
import {
  abortDuringLoad,
  type Disk,
  document,
  evictDocument,
  fastDisk,
  others,
  prompt,
  run,
  tierHarness,
} from "../../tests/support/tier-rig.ts";

const fast: Disk = { ...fastDisk, statePages: 5 };

function harnessOf(tier: Partial<Disk> = {}, slots = 8, pages = 32): EngineHarness {
  return tierHarness({ spec: { pages, states: { slots, bytes: 1 } }, tier: { ...fast, ...tier } });
}

test("an idle engine stores the checkpoint at a prompt's last page border with the pages before it", () => {
  const harness = harnessOf();
  run(harness, prompt);
  expect(harness.tier!.size).toBe(20 + 5);
  expect(harness.load.tierStoredPagesTotal).toBe(25);
  expect(harness.engine.wakeMs).toBeNull();
});

test("a prompt whose pages and checkpoints were evicted begins from the tier's", () => {
  const harness = harnessOf();
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
});

test("a state is loaded where the cache lost it alone", () => {
  const harness = harnessOf({}, 2, 200);
  run(harness, prompt);
  for (let first = 500; first < 900; first += 100) run(harness, tokensFrom(first, 320));
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
  expect(harness.load.tierLoadedPagesTotal).toBe(1);
});

test("the next turn finds the end of the last prompt, and leaves a checkpoint at its own end", () => {
  const harness = harnessOf({}, 8, 64);
  run(harness, prompt);
  run(harness, tokensFrom(100, 1000));
  const second = [...prompt, ...tokensFrom(600, 60)];
  expect(run(harness, second)).toEqual([0, 0, 320]);
  run(harness, tokensFrom(100, 1000));
  const third = [...second, ...tokensFrom(800, 60)];
  expect(run(harness, third)).toEqual([0, 0, 368]);
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
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
  expect(harness.load.tierShortLoadsTotal).toBe(1);
});

test("a load ahead leaves room for itself behind the last checkpoint of its prefix", () => {
  const spec = { pages: 30, states: { slots: 2, bytes: 1 } };
  const engine = { admission: { sequencesMax: 1 } };
  for (let tokens = 100; tokens < 350; tokens += 16) {
    const harness = tierHarness({ spec, engine, tier: fast });
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
  run(harness, others);
  expect(run(harness, prompt, as("b"))).toEqual([0, 0, 64]);
  run(harness, others);
  expect(run(harness, prompt, as("a"))).toEqual([0, 0, 320]);
});

test("a sequence that is aborted during its load leaves pages and checkpoint to the cache", () => {
  expect(abortDuringLoad(harnessOf({ latencyMs: 20 }))).toEqual({
    finish: { kind: "aborted" },
    pagesHeld: 0,
    foundAgain: [320, 0, 0],
  });
});

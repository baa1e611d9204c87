/** Host memory as a lower tier, alone and above a disk: pages are offloaded beside steps and loaded unchanged. */

import { expect, test } from "bun:test";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, type HarnessOptions, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { SequenceId, SequenceSpec } from "../core.ts";
import { linearCost } from "../cost/linear.ts";

type Host = NonNullable<HarnessOptions["host"]>;
type Disk = NonNullable<HarnessOptions["tier"]>;

/** A page takes 0.01 ms; to compute it takes 16 × 0.2 ms. */
const fast: Host = { places: 1000, bytesPerMs: 100, latencyMs: 0.1, beginMs: 0.001, sendingMax: 1000 };
/** A page takes 0.5 ms. */
const slow: Disk = {
  bytesPerMs: 2,
  latencyMs: 1,
  copiedBytesPerMs: 1000,
  waitingPagesMax: 1000,
  segmentPages: 64,
  segmentsMax: 100,
  lostShare: 0,
  seed: 1,
};
const cost = linearCost(6, 0.2);

function harnessOf(host: Partial<Host> = {}, disk: Partial<Disk> | null = null, more: HarnessOptions = {}) {
  const tier = disk === null ? {} : { tier: { ...slow, ...disk } };
  const options = { spec: { pages: 32 }, cost, isStallFree: false, ...tier };
  return new EngineHarness({ ...options, host: { ...fast, ...host }, ...more });
}

const document = tokensFrom(0, 320);
const prompt = [...document, 700];

/** Runs a prompt to its end, checks what was drawn, and returns its tokens that were found, by tier. */
function run(harness: EngineHarness, tokens: readonly number[], changes: Partial<SequenceSpec> = {}) {
  const spec = { ...sequenceSpec(tokens, 2), ...changes };
  const id = harness.submit(spec);
  harness.finish();
  expect(harness.outcomes[id]!.tokens).toEqual(tokensAlone(spec).tokens);
  const { cachedTokens, tierTokens = 0, hostTokens = 0 } = harness.outcomes[id]!;
  return [cachedTokens! - tierTokens, hostTokens, tierTokens - hostTokens];
}

test("a prompt whose pages were evicted finds them in the host's memory", () => {
  const harness = harnessOf();
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  expect(run(harness, prompt)).toEqual([0, 320, 0]);
  expect(harness.load).toMatchObject({ tierLoadedPagesTotal: 20, tierHostPagesTotal: 20 });
});

test("pages that no copy has taken yet are not found", () => {
  const harness = harnessOf({ bytesPerMs: 0.001 });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
});

test("a full tier keeps the most recently used pages, and the beginning of another prompt", () => {
  const harness = harnessOf({ places: 40 });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  expect(run(harness, prompt)).toEqual([0, 144, 0]);
});

test("pages evicted from host memory are loaded from disk through host memory", () => {
  const harness = harnessOf({ places: 40 }, {});
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
  run(harness, tokensFrom(330, 300));
  const [memory, host, disk] = run(harness, prompt);
  expect(memory! + host! + disk!).toBe(320);
  expect(host).toBeGreaterThan(0);
});

test("pages lost on the disk end a load, and the rest is computed", () => {
  const harness = harnessOf({ places: 40 }, { lostShare: 0.1, seed: 3 });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  run(harness, tokensFrom(450, 500));
  const [, , disk] = run(harness, prompt);
  expect(disk).toBeLessThan(320);
  expect(harness.load.tierShortLoadsTotal).toBe(1);
  run(harness, tokensFrom(400, 500));
  run(harness, prompt);
});

test("pages that only a slow disk has are computed where that takes less time", () => {
  const harness = harnessOf({ places: 40 }, { bytesPerMs: 0.1 });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  harness.clock.advance(1000);
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
});

test("a state is offloaded and loaded with its pages", () => {
  const spec = { pages: 32, states: { slots: 8, bytes: 1 } };
  const harness = harnessOf({ statePages: 5 }, null, { spec });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  expect(run(harness, prompt)).toEqual([0, 320, 0]);
});

test("a state is loaded from the disk below", () => {
  const spec = { pages: 32, states: { slots: 8, bytes: 1 } };
  const harness = harnessOf({ statePages: 5, places: 50 }, { statePages: 5 }, { spec });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
});

test("keys share nothing in the host's memory but public text", () => {
  const harness = harnessOf();
  const submit = (last: number, cacheSalt: string): number[] =>
    run(harness, [...document, last], { cacheSalt, publicTokens: 64 });
  submit(700, "a");
  run(harness, tokensFrom(400, 500));
  expect(submit(700, "b")).toEqual([0, 64, 0]);
  run(harness, tokensFrom(450, 500));
  expect(submit(701, "a")).toEqual([0, 320, 0]);
});

test("a sequence that is aborted during its load leaves the pages to the cache", () => {
  const harness = harnessOf({ latencyMs: 20 });
  run(harness, prompt);
  run(harness, tokensFrom(400, 500));
  const id = harness.submit(sequenceSpec(prompt, 2));
  harness.engine.run();
  harness.send("abort", id as SequenceId);
  harness.finish();
  const { pagesFree, pagesCached, pagesTotal } = harness.load;
  expect(pagesFree + pagesCached).toBe(pagesTotal);
  expect(run(harness, prompt)).toEqual([320, 0, 0]);
});

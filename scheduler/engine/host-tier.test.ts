/** Host memory as a lower tier, alone and above a disk: pages are offloaded beside steps and loaded unchanged. */

import { expect, test } from "bun:test";
import { tokensFrom } from "../../simulation/factories.ts";
import type { EngineHarness, HarnessOptions } from "../../tests/support/engine-harness.ts";
import {
  abortDuringLoad,
  type Disk,
  document,
  evictDocument,
  type Found,
  fastDisk,
  others,
  prompt,
  run,
  tierHarness,
} from "../../tests/support/tier-rig.ts";

type Host = NonNullable<HarnessOptions["host"]>;

/** A page takes 0.01 ms. */
const fast: Host = { places: 1000, bytesPerMs: 100, latencyMs: 0.1, beginMs: 0.001, sendingMax: 1000 };
/** A page takes 0.5 ms. */
const slow: Disk = { ...fastDisk, bytesPerMs: 2 };

function harnessOf(
  host: Partial<Host> = {},
  disk: Partial<Disk> | null = null,
  more: HarnessOptions = {},
): EngineHarness {
  const tier = disk === null ? {} : { tier: { ...slow, ...disk } };
  return tierHarness({ host: { ...fast, ...host }, ...tier, ...more });
}

test("a prompt whose pages were evicted finds them in the host's memory", () => {
  const harness = harnessOf();
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 320, 0]);
  expect(harness.load).toMatchObject({ tierLoadedPagesTotal: 20, tierHostPagesTotal: 20 });
});

test("pages that no copy has taken yet are not found", () => {
  const harness = harnessOf({ bytesPerMs: 0.001 });
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
});

test("a full tier keeps the most recently used pages, and the beginning of another prompt", () => {
  const harness = harnessOf({ places: 40 });
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 144, 0]);
});

test("pages evicted from host memory are loaded from disk through host memory", () => {
  const harness = harnessOf({ places: 40 }, {});
  evictDocument(harness);
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
  run(harness, tokensFrom(330, 300));
  const [memory, host, disk] = run(harness, prompt);
  expect(memory! + host! + disk!).toBe(320);
  expect(host).toBeGreaterThan(0);
});

test("pages lost on the disk end a load, and the rest is computed", () => {
  const harness = harnessOf({ places: 40 }, { lostShare: 0.1, seed: 3 });
  evictDocument(harness);
  run(harness, tokensFrom(450, 500));
  const [, , disk] = run(harness, prompt);
  expect(disk).toBeLessThan(320);
  expect(harness.load.tierShortLoadsTotal).toBe(1);
  run(harness, others);
  run(harness, prompt);
});

test("pages that only a slow disk has are computed where that takes less time", () => {
  const harness = harnessOf({ places: 40 }, { bytesPerMs: 0.1 });
  evictDocument(harness);
  harness.clock.advance(1000);
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
});

test("a state is offloaded and loaded with its pages", () => {
  const spec = { pages: 32, states: { slots: 8, bytes: 1 } };
  const harness = harnessOf({ statePages: 5 }, null, { spec });
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 320, 0]);
});

test("a state is loaded from the disk below", () => {
  const spec = { pages: 32, states: { slots: 8, bytes: 1 } };
  const harness = harnessOf({ statePages: 5, places: 50 }, { statePages: 5 }, { spec });
  evictDocument(harness);
  run(harness, tokensFrom(450, 500));
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
});

test("keys share nothing in the host's memory but public text", () => {
  const harness = harnessOf();
  const submit = (last: number, cacheSalt: string): Found =>
    run(harness, [...document, last], { cacheSalt, publicTokens: 64 });
  submit(700, "a");
  run(harness, others);
  expect(submit(700, "b")).toEqual([0, 64, 0]);
  run(harness, tokensFrom(450, 500));
  expect(submit(701, "a")).toEqual([0, 320, 0]);
});

test("a sequence that is aborted during its load leaves the pages to the cache", () => {
  expect(abortDuringLoad(harnessOf({ latencyMs: 20 }))).toEqual({
    finish: { kind: "aborted" },
    pagesHeld: 0,
    foundAgain: [320, 0, 0],
  });
});

/**
 * A lower tier: pages are stored before the device evicts them, and are loaded unchanged ahead of their use.
 */

import { expect, test } from "bun:test";
import type { Clock } from "../../base/clock.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { SimulatedTier } from "../../simulation/simulated-tier.ts";
import type { EngineHarness } from "../../tests/support/engine-harness.ts";
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
  tierCost,
  tierHarness,
} from "../../tests/support/tier-rig.ts";
import type { LowerTier } from "../cache/lower-tier.ts";
import type { SequenceId } from "../core.ts";
import type { EngineReport } from "../messages.ts";
import { Engine } from "./engine.ts";

function harnessOf(tier: Partial<Disk>, pages = 32): EngineHarness {
  return tierHarness({ spec: { pages }, tier: { ...fastDisk, ...tier } });
}

test("an idle engine stores what it has computed, the answer too", () => {
  const harness = harnessOf({});
  harness.submit(sequenceSpec(document, 20));
  harness.finish();
  expect(harness.tier!.size).toBe(Math.floor((320 + 19) / 16));
  expect(harness.load.tierStoredPagesTotal).toBe(21);
  expect(harness.engine.wakeMs).toBeNull();
});

test("stores take a hundredth of the time of an engine that computes", () => {
  const harness = harnessOf({ copiedBytesPerMs: 2 });
  harness.submit(sequenceSpec(document, 180));
  while (harness.outcomes[0]!.finish === null) {
    harness.step();
    expect(0.5 * harness.tier!.size).toBeLessThanOrEqual(1 + 0.01 * harness.clock.nowMs());
  }
  expect(harness.tier!.size).toBeGreaterThan(8);
  harness.finish();
  expect(harness.tier!.size).toBe(Math.floor((320 + 179) / 16));
});

test("pages are stored no more when others of their kind were not read", () => {
  // A load takes a little less time than the computation, so that a store pays at high chances only.
  const harness = harnessOf({ bytesPerMs: 1 / 3.05 });
  const sizes: number[] = [];
  for (let first = 0; first < 140; first++) {
    run(harness, tokensFrom(first, 480));
    sizes.push(harness.tier!.size);
  }
  expect(sizes[9]).toBe(300);
  expect(sizes[139]).toBe(sizes[138]);
});

test("a prompt whose pages were evicted finds them on the tier, and computes only the rest", () => {
  const harness = harnessOf({});
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 0, 320]);
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
  expect(harness.load.tierFoundPagesTotal).toBe(20);
});

test("an idle engine loads what a prefix hint lacks, and computes what the tier lacks", () => {
  const harness = harnessOf({});
  evictDocument(harness);
  const before = harness.steps.length;
  harness.expect(0, [...document, 700, 701, 702]);
  harness.finish();
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
  const warmed = harness.reports.flatMap((report) => report.warmed);
  expect(warmed.reduce((sum, { tokens }) => sum + tokens, 0)).toBe(3);
  expect(harness.steps.length - before).toBe(1);
  const id = harness.submit(sequenceSpec([...document, 700, 701, 702, 703], 2));
  harness.forget(0);
  harness.finish();
  expect(harness.outcomes[id]).toMatchObject({ cachedTokens: 323 });
});

test("an idle engine computes what a slow tier would load later", () => {
  const harness = harnessOf({ latencyMs: 1000 });
  evictDocument(harness);
  expect(harness.tier!.size).toBeGreaterThan(20);
  harness.expect(0, document);
  harness.finish();
  expect(harness.load.tierLoadedPagesTotal).toBe(0);
  expect(harness.reports.flatMap(({ warmed }) => warmed).reduce((sum, { tokens }) => sum + tokens, 0)).toBe(
    320,
  );
});

test("sequences that want the same pages cause one load", () => {
  const harness = harnessOf({}, 64);
  evictDocument(harness);
  run(harness, tokensFrom(200, 900));
  const ids = [700, 701, 702].map((last) => harness.submit(sequenceSpec([...document, last], 2)));
  harness.finish();
  expect(ids.map((id) => harness.outcomes[id]!.cachedTokens)).toEqual([320, 320, 320]);
  expect(harness.load.tierLoadedPagesTotal).toBe(20);
});

test("pages are loaded while another sequence computes", () => {
  const harness = harnessOf({}, 40);
  evictDocument(harness);
  const other = harness.submit(sequenceSpec(tokensFrom(300, 64), 30));
  harness.step();
  const id = harness.submit(sequenceSpec(prompt, 2));
  while (harness.outcomes[id]!.finish === null) harness.step();
  expect(harness.outcomes[id]!.cachedTokens).toBe(320);
  expect(harness.outcomes[other]!.finish).toBeNull();
});

test("a load that ends early keeps its valid pages, and the rest is computed", () => {
  const harness = harnessOf({ lostShare: 0.1, seed: 3 });
  evictDocument(harness);
  const [, , disk] = run(harness, prompt);
  expect(disk).toBeGreaterThan(0);
  expect(disk).toBeLessThan(320);
  expect(harness.load.tierShortLoadsTotal).toBe(1);
});

test("pages are computed that a slow tier would load later, and are not stored", () => {
  const harness = harnessOf({ bytesPerMs: 0.1 });
  evictDocument(harness);
  expect(harness.tier!.size).toBe(0);
});

test("a sequence begins without the tier if the load takes longer than the computation", () => {
  const harness = harnessOf({ latencyMs: 1000 });
  evictDocument(harness);
  expect(run(harness, prompt)).toEqual([0, 0, 0]);
  expect(harness.load.tierLoadedPagesTotal).toBe(0);
});

test("a sequence that is aborted during its load leaves the pages to the cache", () => {
  expect(abortDuringLoad(harnessOf({ latencyMs: 20 }))).toEqual({
    finish: { kind: "aborted" },
    pagesHeld: 0,
    foundAgain: [320, 0, 0],
  });
});

test("keys share nothing on the tier but public text", () => {
  const harness = harnessOf({});
  const submit = (last: number, cacheSalt: string): Found =>
    run(harness, [...document, last], { cacheSalt, publicTokens: 64 });
  submit(700, "a");
  run(harness, others);
  expect(submit(700, "b")).toEqual([0, 0, 64]);
  expect(submit(701, "a")).toEqual([64, 0, 256]);
});

test("a lost device ends a sequence that waits for a load", () => {
  let isLost = false;
  const harness = tierHarness({
    spec: { pages: 40 },
    tier: { ...fastDisk, latencyMs: 500, bytesPerMs: 1000 },
    fault: () => (isLost ? { kind: "lost", reason: "gone" } : null),
  });
  evictDocument(harness);
  harness.submit(sequenceSpec(tokensFrom(300, 64), 30));
  harness.step();
  const id = harness.submit(sequenceSpec(prompt, 2));
  harness.submit(sequenceSpec([...document, 701], 2));
  harness.submit(sequenceSpec([...document, 702], 2));
  isLost = true;
  harness.finish();
  expect(harness.outcomes[id]!.finish).toEqual({ kind: "failed", reason: "gone" });
  expect(harness.engine.busy).toBe(false);
});

/** The tier with another way to load. */
function withLoad(tier: LowerTier, load: LowerTier["load"]): LowerTier {
  return {
    costs: tier.costs,
    find: (prompt, first) => tier.find(prompt, first),
    loadPageMs: (...pages) => tier.loadPageMs(...pages),
    findState: (prompt, first, end) => tier.findState(prompt, first, end),
    store: (prompt, first, pages) => tier.store(prompt, first, pages),
    storeState: (prompt, end, slot, first, count) => tier.storeState(prompt, end, slot, first, count),
    load,
  };
}

test("a sequence computes if its load does not end, and the load keeps its pages until it does", () => {
  const clock = new ManualClock();
  const spec = deviceSpec({ pages: 63 });
  const device = new SimulatedDevice(spec, clock, tierCost);
  const tier = new SimulatedTier({ ...fastDisk, pageBytes: 1, pageTokens: 16 }, clock, device);
  const stuck: (() => void)[] = [];
  const hanging = withLoad(tier, (...load) => {
    for (const page of load[2]) device.spoil(page);
    stuck.push(() => tier.load(...load));
  });
  const reports: EngineReport[] = [];
  const tell = (report: EngineReport): void => {
    reports.push(report);
  };
  const engine = new Engine(device, clock, { integrity: "always" }, tell, tierCost, hanging);
  const compute = (id: number, tokens: readonly number[]): void => {
    engine.receive({ kind: "submit", sequence: { ...sequenceSpec(tokens, 2), id: id as SequenceId } });
    engine.run();
    clock.runAll();
    for (let { wakeMs } = engine; wakeMs !== null; { wakeMs } = engine) {
      clock.advance(wakeMs - clock.nowMs());
      engine.run();
      clock.runAll();
    }
  };
  const cached = (): readonly number[] =>
    reports.flatMap((report) => report.started.map((one) => one.cachedTokens));
  for (const [id, tokens] of [prompt, tokensFrom(400, 1000), prompt].entries()) compute(id, tokens);
  expect(cached()).toEqual([0, 0, 0]);
  expect(reports.flatMap(({ finished }) => finished.map(({ finish }) => finish.kind))).toEqual(
    Array.from({ length: 3 }, () => "length"),
  );
  // The tier is taken for stuck: nothing else is loaded, and the pages of the load are not used.
  compute(3, [...tokensFrom(400, 600), 1]);
  expect(stuck).toHaveLength(1);
  const load = (): EngineReport["load"] => reports.at(-1)!.load;
  expect(load().pagesFree + load().pagesCached).toBe(63 - 20);
  stuck[0]!();
  clock.runAll();
  expect(load().pagesFree + load().pagesCached).toBe(63);
  expect(load().tierLoadedPagesTotal).toBe(20);
});

/** Computes a document on a device of few pages, and again from what a tampered tier returns. */
function readBack(load: (tier: LowerTier, clock: Clock) => LowerTier["load"]): void {
  const clock = new ManualClock();
  const spec = deviceSpec({ pages: 32 });
  const device = new SimulatedDevice(spec, clock, tierCost);
  const tier = new SimulatedTier({ ...fastDisk, pageBytes: 1, pageTokens: 16 }, clock, device);
  const tampered = withLoad(tier, load(tier, clock));
  const engine = new Engine(device, clock, { integrity: "always" }, () => {}, tierCost, tampered);
  const prompts = [prompt, others, prompt];
  for (const [index, prompt] of prompts.entries()) {
    engine.receive({ kind: "submit", sequence: { ...sequenceSpec(prompt, 2), id: index as SequenceId } });
    engine.run();
    clock.runAll();
  }
  expect(engine.busy).toBe(false);
}

test("the simulated device detects wrong pages, and reads before a page is loaded", () => {
  readBack((tier) => (prompt, first, pages, slot, done) => tier.load(prompt, first, pages, slot, done));
  const swap = (tier: LowerTier): LowerTier["load"] => {
    return (prompt, first, pages, slot, done) => tier.load(prompt, first, pages.toReversed(), slot, done);
  };
  expect(() => readBack(swap)).toThrow("keys and values belong to the context they are read in");
  const hurry = (_: LowerTier, clock: Clock): LowerTier["load"] => {
    return (_prompt, _first, pages, _slot, done) => {
      clock.after(0, () => done(pages.length, 0));
    };
  };
  expect(() => readBack(hurry)).toThrow("keys and values belong to the context they are read in");
});

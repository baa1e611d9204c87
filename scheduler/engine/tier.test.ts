/**
 * A lower tier: pages are stored before the device evicts them, and are loaded unchanged ahead of their use.
 */

import { expect, test } from "bun:test";
import type { Clock } from "../../base/clock.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { SimulatedTier } from "../../simulation/simulated-tier.ts";
import { EngineHarness, type HarnessOptions, tokensAlone } from "../../tests/support/engine-harness.ts";
import type { LowerTier } from "../cache/lower-tier.ts";
import type { SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import type { EngineReport } from "../messages.ts";
import { Engine } from "./engine.ts";

type Tier = NonNullable<HarnessOptions["tier"]>;

/** A page takes 0.1 ms; to compute it takes 16 × 0.2 ms. */
const fast: Tier = {
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

function harnessOf(tier: Partial<Tier>, pages = 32): EngineHarness {
  return new EngineHarness({ spec: { pages }, cost, isStallFree: false, tier: { ...fast, ...tier } });
}

const document = tokensFrom(0, 320);

/** Computes a document, and then others that take its place. */
function evictDocument(harness: EngineHarness): void {
  harness.submit(sequenceSpec([...document, 700], 2));
  harness.finish();
  harness.submit(sequenceSpec(tokensFrom(400, 500), 2));
  harness.finish();
  const { tokens } = harness.outcomes[0]!;
  expect(tokens).toEqual(tokensAlone(sequenceSpec([...document, 700], 2)).tokens);
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
    harness.submit(sequenceSpec(tokensFrom(first, 480), 2));
    harness.finish();
    sizes.push(harness.tier!.size);
  }
  expect(sizes[9]).toBe(300);
  expect(sizes[139]).toBe(sizes[138]);
});

test("a prompt whose pages were evicted finds them on the tier, and computes only the rest", () => {
  const harness = harnessOf({});
  evictDocument(harness);
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  harness.finish();
  expect(harness.outcomes[id]).toMatchObject({ ...harness.outcomes[0]!, cachedTokens: 320, tierTokens: 320 });
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
  harness.submit(sequenceSpec(tokensFrom(200, 900), 2));
  harness.finish();
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
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  while (harness.outcomes[id]!.finish === null) harness.step();
  expect(harness.outcomes[id]!.cachedTokens).toBe(320);
  expect(harness.outcomes[other]!.finish).toBeNull();
});

test("a load that ends early keeps its valid pages, and the rest is computed", () => {
  const harness = harnessOf({ lostShare: 0.1, seed: 3 });
  evictDocument(harness);
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  harness.finish();
  const { tokens, cachedTokens } = harness.outcomes[id]!;
  expect(tokens).toEqual(harness.outcomes[0]!.tokens);
  expect(cachedTokens).toBeGreaterThan(0);
  expect(cachedTokens).toBeLessThan(320);
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
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  harness.finish();
  expect(harness.outcomes[id]).toMatchObject({ ...harness.outcomes[0]!, cachedTokens: 0 });
  expect(harness.load.tierLoadedPagesTotal).toBe(0);
});

test("a sequence that is aborted during its load leaves the pages to the cache", () => {
  const harness = harnessOf({ latencyMs: 20 });
  evictDocument(harness);
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  harness.engine.run();
  harness.send("abort", id);
  harness.finish();
  expect(harness.outcomes[id]!.finish).toEqual({ kind: "aborted" });
  const { pagesFree, pagesCached, pagesTotal } = harness.load;
  expect(pagesFree + pagesCached).toBe(pagesTotal);
  const again = harness.submit(sequenceSpec([...document, 700], 2));
  harness.finish();
  expect(harness.outcomes[again]).toMatchObject({ ...harness.outcomes[0]!, cachedTokens: 320 });
  expect(harness.outcomes[again]!.tierTokens).toBeUndefined();
});

test("keys share nothing on the tier but public text", () => {
  const harness = harnessOf({});
  const submit = (last: number, cacheSalt: string): SequenceId =>
    harness.submit({ ...sequenceSpec([...document, last], 2, { cacheSalt }), publicTokens: 64 });
  submit(700, "a");
  harness.finish();
  harness.submit(sequenceSpec(tokensFrom(400, 500), 2));
  harness.finish();
  const other = submit(700, "b");
  harness.finish();
  const same = submit(701, "a");
  harness.finish();
  expect(harness.outcomes[other]!.cachedTokens).toBe(64);
  expect(harness.outcomes[same]!.cachedTokens).toBe(320);
});

test("a lost device ends a sequence that waits for a load", () => {
  let isLost = false;
  const harness = new EngineHarness({
    spec: { pages: 40 },
    cost,
    isStallFree: false,
    tier: { ...fast, latencyMs: 500, bytesPerMs: 1000 },
    fault: () => (isLost ? { kind: "lost", reason: "gone" } : null),
  });
  evictDocument(harness);
  harness.submit(sequenceSpec(tokensFrom(300, 64), 30));
  harness.step();
  const id = harness.submit(sequenceSpec([...document, 700], 2));
  harness.submit(sequenceSpec([...document, 701], 2));
  harness.submit(sequenceSpec([...document, 702], 2));
  isLost = true;
  harness.finish();
  expect(harness.outcomes[id]!.finish).toEqual({ kind: "failed", reason: "gone" });
  expect(harness.engine.busy).toBe(false);
});

test("a sequence computes if its load does not end, and the load keeps its pages until it does", () => {
  const clock = new ManualClock();
  const spec = deviceSpec({ pages: 63 });
  const device = new SimulatedDevice(spec, clock, cost);
  const tier = new SimulatedTier({ ...fast, pageBytes: 1, pageTokens: 16 }, clock, device);
  const stuck: (() => void)[] = [];
  const hanging: LowerTier = {
    costs: tier.costs,
    find: (prompt, first) => tier.find(prompt, first),
    loadPageMs: () => tier.loadPageMs(),
    findState: (prompt, first, end) => tier.findState(prompt, first, end),
    store: (prompt, first, pages) => tier.store(prompt, first, pages),
    storeState: (prompt, end, slot, first, count) => tier.storeState(prompt, end, slot, first, count),
    load: (...load) => {
      for (const page of load[2]) device.spoil(page);
      stuck.push(() => tier.load(...load));
    },
  };
  const reports: EngineReport[] = [];
  const tell = (report: EngineReport): void => {
    reports.push(report);
  };
  const engine = new Engine(device, clock, { integrity: "always" }, tell, cost, hanging);
  const run = (id: number, prompt: readonly number[]): void => {
    engine.receive({ kind: "submit", sequence: { ...sequenceSpec(prompt, 2), id: id as SequenceId } });
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
  for (const [id, prompt] of [[...document, 700], tokensFrom(400, 1000), [...document, 700]].entries())
    run(id, prompt);
  expect(cached()).toEqual([0, 0, 0]);
  expect(reports.flatMap(({ finished }) => finished.map(({ finish }) => finish.kind))).toEqual(
    Array.from({ length: 3 }, () => "length"),
  );
  // The tier is taken for stuck: nothing else is loaded, and the pages of the load are not used.
  run(3, [...tokensFrom(400, 600), 1]);
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
  const device = new SimulatedDevice(spec, clock, cost);
  const tier = new SimulatedTier({ ...fast, pageBytes: 1, pageTokens: 16 }, clock, device);
  const tampered: LowerTier = {
    costs: tier.costs,
    find: (prompt, first) => tier.find(prompt, first),
    loadPageMs: () => tier.loadPageMs(),
    findState: (prompt, first, end) => tier.findState(prompt, first, end),
    store: (prompt, first, pages) => tier.store(prompt, first, pages),
    storeState: (prompt, end, slot, first, count) => tier.storeState(prompt, end, slot, first, count),
    load: load(tier, clock),
  };
  const engine = new Engine(device, clock, { integrity: "always" }, () => {}, cost, tampered);
  const prompts = [[...document, 700], tokensFrom(400, 500), [...document, 700]];
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

/** What moves when engines are unequally loaded. */

import { expect, test } from "bun:test";
import type { EngineId } from "../core.ts";
import type { E2Policy } from "../policy.ts";
import { PrefixIndex } from "./prefix-index.ts";
import { Rebalancer } from "./rebalance.ts";

const WINDOW_MS = 10_000;
const policy: E2Policy = {
  kind: "e2",
  load: "window",
  windowMs: WINDOW_MS,
  eviction: "rate",
  notices: true,
  spill: false,
  harm: false,
  moves: false,
  rebalance: { ratio: 1.5, marginMs: 1000 },
  replicate: { ratio: 2 },
  imbalance: null,
  gang: "alone",
};

const [heavy, light] = [0 as EngineId, 1 as EngineId];

/** Prefixes 1, 2, … that have put so many milliseconds of work on engine 0. */
function bench(works: readonly number[], changes: Partial<E2Policy> = {}) {
  const index = new PrefixIndex(2, WINDOW_MS);
  const rebalancer = new Rebalancer({ ...policy, ...changes }, 2);
  const spans = works.map((ms, prefix) => {
    const span = index.promise(Float64Array.of(prefix + 1, 100 + prefix), heavy, 0)!;
    rebalancer.placed(span, 2, heavy, ms, 0);
    return span;
  });
  const sum = works.reduce((total, ms) => total + ms, 0);
  const review = (heavyMs = sum, lightMs = 0, nowMs = 0, liveMs = heavyMs): void => {
    const loads = [
      { engine: heavy, loadMs: heavyMs, liveMs },
      { engine: light, loadMs: lightMs, liveMs: 0 },
    ];
    rebalancer.review(loads, nowMs);
  };
  const moved = (): (EngineId | null)[] => spans.map((span) => rebalancer.redirectOf(span));
  return { index, rebalancer, spans, review, moved };
}

test("the largest prefixes that are less than half of the difference move, until the engines are balanced", () => {
  const { review, moved } = bench([9000, 4000, 3000, 2000]);
  review();
  // 18,000 against 0: the largest below 9,000 moves; of 14,000 against 4,000, the largest below 5,000.
  expect(moved()).toEqual([null, light, light, null]);
});

test("nothing moves where engines differ by less than the ratio or the margin", () => {
  const { review, moved } = bench([400, 300, 300]);
  review();
  expect(moved()).toEqual([null, null, null]);
  const even = bench([9000, 4000, 3000]);
  even.review(16_000, 12_000);
  expect(even.moved()).toEqual([null, null, null]);
});

test("nothing moves from an engine that has done what it was given", () => {
  const { review, moved } = bench([5000, 2000], { load: "outstanding" });
  review(7000, 0, 0, 1000);
  expect(moved()).toEqual([null, null]);
  review(7000, 0, 0, 1001);
  expect(moved()).toEqual([null, light]);
});

test("a redirect ends when half of its load is gone, after two windows, or with its engine", () => {
  const { rebalancer, spans, review, moved } = bench([9000, 4000]);
  review();
  expect(moved()).toEqual([null, light]);
  rebalancer.lost(light);
  expect(moved()).toEqual([null, null]);
  review();
  // Its hits are older than half a window.
  review(1, 1, 1.6 * WINDOW_MS);
  expect(moved()).toEqual([null, null]);
  expect(rebalancer.redirects).toBe(0);
  for (const nowMs of [1.6, 2.5, 3.4].map((windows) => windows * WINDOW_MS)) {
    rebalancer.placed(spans[1]!, 2, heavy, 4000, nowMs);
  }
  const at = 3.4 * WINDOW_MS;
  rebalancer.placed(spans[0]!, 2, heavy, 12_000, at);
  review(14_000, 0, at);
  expect(moved()[1]).toBe(light);
  for (let nowMs = at; nowMs <= at + 2 * WINDOW_MS; nowMs += WINDOW_MS / 2) {
    rebalancer.placed(spans[1]!, 2, light, 9000, nowMs);
  }
  review(1, 1, at + 2 * WINDOW_MS);
  expect(moved()[1]).toBe(light);
  review(1, 1, at + 2 * WINDOW_MS + 1);
  expect(moved()[1]).toBeNull();
});

test("what goes on from a moved prefix moves with it, and neither moves again", () => {
  const { index, rebalancer, review } = bench([4000, 9000]);
  review();
  const below = index.promise(Float64Array.of(1, 100, 7), heavy, 0)!;
  expect(rebalancer.redirectOf(below)).toBe(light);
  rebalancer.placed(below, 3, heavy, 2000, 0);
  review(15_000, 0);
  expect(rebalancer.redirects).toBe(1);
});

test("a prefix that is more than the difference gets a second engine once its waits have doubled", () => {
  const { rebalancer, spans, review } = bench([9000, 500]);
  const wait = (ms: number, nowMs: number): void => {
    for (let i = 0; i < 4; i++) rebalancer.waited(spans[0]!, ms, nowMs);
  };
  wait(10, 0);
  wait(19, WINDOW_MS / 2);
  review(9500, 1000, WINDOW_MS / 2);
  expect(rebalancer.takeReplica(spans[0]!)).toBe(false);
  wait(30, WINDOW_MS / 2);
  review(9500, 1000, WINDOW_MS / 2);
  expect(rebalancer.takeReplica(spans[1]!)).toBe(false);
  expect(rebalancer.takeReplica(spans[0]!)).toBe(true);
  review(9500, 1000, WINDOW_MS / 2);
  expect(rebalancer.takeReplica(spans[0]!)).toBe(false);
});

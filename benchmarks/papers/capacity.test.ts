/** Search for the capacity of synthetic systems. */

import { expect, test } from "bun:test";
import { capacityOf, type Probe, rateAt } from "./capacity.ts";

/** Makes a system that keeps 100 ms up to one rate, and 2 s of waiting up to another. */
function system(
  tbtRate: number,
  queueingRate: number,
): { probe: (index: number) => Probe; probes: number[] } {
  const probes: number[] = [];
  const probe = (index: number): Probe => {
    probes.push(index);
    const rate = rateAt(index);
    return { tbtP99Ms: rate <= tbtRate ? 100 : 101, queueingP50Ms: rate <= queueingRate ? 0 : 2001 };
  };
  return { probe, probes };
}

test("the capacity is the highest rate that keeps both bounds, within 2.5 %", () => {
  for (const [tbtRate, queueingRate] of [
    [0.3, 9],
    [2.9, 3.1],
    [50, 3.7],
    [4, 4],
  ] as const) {
    const { probe, probes } = system(tbtRate, queueingRate);
    const capacity = capacityOf(probe, 100);
    const bound = Math.min(tbtRate, queueingRate);
    expect(capacity).toBeLessThanOrEqual(bound * (1 + 1e-9));
    expect(capacity * 1.025).toBeGreaterThan(bound);
    expect(probes.length).toBeLessThanOrEqual(20);
    expect(new Set(probes).size).toBe(probes.length);
  }
});

test("a good place to start saves probes, and a target that nothing keeps has capacity 0", () => {
  const near = system(4.3, 9);
  capacityOf(near.probe, 100);
  expect(near.probes.length).toBeLessThanOrEqual(5);
  expect(capacityOf(system(0.001, 9).probe, 100)).toBe(0);
});

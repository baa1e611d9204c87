/** Promises of the residency policy, on drawn loads of two to five models. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { DEMAND_LOADS, STAY_LOADS } from "../scheduler/residency/residency.ts";
import { runs } from "../tests/support/property.ts";
import { type ModelRequest, type SimulatedModel, simulateResidency } from "./residency.ts";

const names = ["a", "b", "c", "d", "e"];

const someModels = fc
  .array(
    fc.record({
      bytes: fc.integer({ min: 1, max: 10 }),
      loadMs: fc.integer({ min: 1, max: 100 }),
      keepAliveMs: fc.constantFrom(0, 50, Number.POSITIVE_INFINITY),
      failingLoads: fc.uniqueArray(fc.integer({ min: 0, max: 3 }), { maxLength: 2 }),
    }),
    { minLength: 2, maxLength: 5 },
  )
  .map((models): SimulatedModel[] => models.map((model, at) => ({ name: names[at]!, ...model })));

const someRequests = fc.array(
  fc.record({
    model: fc.nat({ max: 4 }),
    afterMs: fc.integer({ min: 0, max: 60 }),
    runMs: fc.integer({ min: 0, max: 200 }),
  }),
  { minLength: 1, maxLength: 60 },
);

interface Drawn {
  readonly models: readonly SimulatedModel[];
  readonly requests: readonly ModelRequest[];
  /** Memory for the two largest models. */
  readonly limitBytes: number;
}

const drawn = fc.tuple(someModels, someRequests).map(([models, asked]): Drawn => {
  let arrivalMs = 0;
  const requests = asked.map(({ model, afterMs, runMs }) => {
    arrivalMs += afterMs;
    return { model: models[model % models.length]!.name, arrivalMs, runMs };
  });
  const sizes = models.map(({ bytes }) => bytes).sort((a, b) => b - a);
  return { models, requests, limitBytes: sizes[0]! + sizes[1]! };
});

test("planned memory never exceeds the limit, and every request has an outcome", () => {
  fc.assert(
    fc.property(drawn, ({ models, requests, limitBytes }) => {
      const { waitsMs, peakBytes } = simulateResidency(models, requests, limitBytes);
      expect(peakBytes).toBeLessThanOrEqual(limitBytes);
      expect(waitsMs).not.toContain(undefined);
    }),
    runs(300),
  );
});

test("a request fails only when the load that it waited for did", () => {
  fc.assert(
    fc.property(drawn, ({ models, requests, limitBytes }) => {
      const sound = models.map((model) => ({ ...model, failingLoads: [] }));
      expect(simulateResidency(sound, requests, limitBytes).waitsMs).not.toContain(null);
    }),
    runs(200),
  );
});

test("a failed load changes nothing for the requests of models that share no memory with it", () => {
  fc.assert(
    fc.property(drawn, ({ models, requests }) => {
      const room = models.reduce((sum, { bytes }) => sum + bytes, 0);
      const failing = (all: boolean) =>
        models.map((model, at) => ({ ...model, failingLoads: all && at === 0 ? [0, 1, 2] : [] }));
      const others = ({ waitsMs }: { readonly waitsMs: readonly (number | null)[] }) =>
        waitsMs.filter((_, index) => requests[index]!.model !== "a");
      expect(others(simulateResidency(failing(true), requests, room))).toEqual(
        others(simulateResidency(failing(false), requests, room)),
      );
    }),
    runs(200),
  );
});

/** Models in constant demand: each has a request at every moment, with memory for fewer than all. */
const inDemand = fc.record({
  loadMs: fc.array(fc.integer({ min: 20, max: 100 }), { minLength: 3, maxLength: 5 }),
  runMs: fc.integer({ min: 4, max: 20 }),
});

test("models in constant demand load for half of the time of a place in memory at most", () => {
  fc.assert(
    fc.property(inDemand, ({ loadMs, runMs }) => {
      const models = loadMs.map((ms, at) => ({ name: names[at]!, bytes: 1, loadMs: ms }));
      const requests = models.flatMap(({ name }) =>
        Array.from({ length: 300 }, (_, at) => ({ model: name, arrivalMs: at * 4, runMs })),
      );
      const { loads, endMs } = simulateResidency(models, requests, 2);
      const loadingMs = loads.reduce((sum, { startMs, endMs }) => sum + endMs - startMs, 0);
      const lastMs = 2 * Math.max(...loadMs); // a load at the end of either place has not paid yet
      expect(loadingMs).toBeLessThanOrEqual((2 * endMs) / (1 + STAY_LOADS) + lastMs);
    }),
    runs(20),
  );
});

test("a request waits for the loads, stays and answers of all other models at most", () => {
  fc.assert(
    fc.property(inDemand, ({ loadMs, runMs }) => {
      const models = loadMs.map((ms, at) => ({ name: names[at]!, bytes: 1, loadMs: ms }));
      const requests = models.flatMap(({ name }) =>
        Array.from({ length: 300 }, (_, at) => ({ model: name, arrivalMs: at * 4, runMs })),
      );
      const { waitsMs } = simulateResidency(models, requests, 1);
      const bound = loadMs.reduce((sum, ms) => sum + (1 + STAY_LOADS + DEMAND_LOADS) * ms + runMs, 0);
      expect(Math.max(...waitsMs.map((wait) => wait!))).toBeLessThanOrEqual(bound);
    }),
    runs(20),
  );
});

/**
 * Several models in virtual time: requests arrive, and models load and unload as the residency policy
 * decides.
 */

import { decideResidency, type ModelState, residentBytes } from "../scheduler/residency/residency.ts";

/** A model whose loads take a fixed time. */
export interface SimulatedModel {
  readonly name: string;
  readonly bytes: number;
  readonly loadMs: number;
  readonly isPinned?: boolean;
  readonly keepAliveMs?: number;
  /** Numbers of loads that fail, the first being 0; absent: none. */
  readonly failingLoads?: readonly number[];
}

/** Request for a model. */
export interface ModelRequest {
  readonly model: string;
  readonly arrivalMs: number;
  /** Computing time of the request. */
  readonly runMs: number;
}

/** Results of a simulated server. */
export interface ResidencyRun {
  /** Outcome by request: milliseconds before its model was loaded; null if the load failed. */
  readonly waitsMs: readonly (number | null)[];
  /** Loads of each model, as intervals. */
  readonly loads: readonly { readonly model: string; readonly startMs: number; readonly endMs: number }[];
  /** Largest planned memory at any time. */
  readonly peakBytes: number;
  readonly endMs: number;
}

interface Running extends Omit<Mutable<ModelState>, "isPinned"> {
  readonly isPinned: boolean;
  readonly keepAliveMs: number;
  readonly failing: readonly number[];
  loads: number;
  startedMs: number;
  readonly waiting: number[];
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] };

interface Happening {
  readonly atMs: number;
  readonly act: () => void;
}

/** Runs the requests to their end. Ends early, with requests that have no outcome, if nothing more happens. */
export function simulateResidency(
  models: readonly SimulatedModel[],
  requests: readonly ModelRequest[],
  limitBytes: number,
): ResidencyRun {
  const running = new Map(models.map((model) => [model.name, opened(model)]));
  const waitsMs: (number | null | undefined)[] = requests.map(() => undefined);
  const loads: { model: string; startMs: number; endMs: number }[] = [];
  const queue: Happening[] = [];
  let nowMs = 0;
  let peakBytes = 0;
  const at = (atMs: number, act: () => void): void => {
    const place = queue.findLastIndex((happening) => happening.atMs <= atMs) + 1;
    queue.splice(place, 0, { atMs, act });
  };

  const start = (model: Running, index: number): void => {
    model.users += 1;
    model.usedMs = nowMs;
    waitsMs[index] = nowMs - requests[index]!.arrivalMs;
    at(nowMs + requests[index]!.runMs, () => {
      model.users -= 1;
      model.usedMs = nowMs;
    });
  };
  const loaded = (model: Running): void => {
    loads.push({ model: model.name, startMs: model.startedMs, endMs: nowMs });
    const fails = model.failing.includes(model.loads);
    model.loads += 1;
    model.phase = fails ? "out" : "in";
    model.loadedMs = nowMs;
    model.usedMs = nowMs;
    for (const index of model.waiting.splice(0)) {
      if (fails) waitsMs[index] = null;
      else start(model, index);
    }
  };
  for (const [index, { model: name, arrivalMs }] of requests.entries()) {
    at(arrivalMs, () => {
      const model = running.get(name)!;
      if (model.phase === "in") start(model, index);
      else model.waiting.push(index);
    });
  }

  for (;;) {
    for (const model of running.values()) {
      if (model.phase === "leaving" && model.users === 0) model.phase = "out";
      model.keptUntilMs = model.usedMs + model.keepAliveMs;
      const [first] = model.waiting; // requests wait in the order of their arrival
      model.waitingSinceMs = first === undefined ? null : requests[first]!.arrivalMs;
    }
    const decision = decideResidency([...running.values()], limitBytes, nowMs);
    for (const name of decision.load) {
      const model = running.get(name)!;
      model.phase = "loading";
      model.startedMs = nowMs;
      at(nowMs + model.loadMs, () => loaded(model));
    }
    for (const name of decision.leave) running.get(name)!.phase = "leaving";
    peakBytes = Math.max(peakBytes, residentBytes([...running.values()]));
    if (decision.leave.some((name) => running.get(name)!.users === 0)) continue;
    const nextMs = queue[0]?.atMs ?? Number.POSITIVE_INFINITY;
    if (queue.length === 0 && waitsMs.every((wait) => wait !== undefined)) break;
    if (decision.againMs !== null && decision.againMs < nextMs) nowMs = decision.againMs;
    else if (queue.length === 0) break;
    else {
      nowMs = nextMs;
      queue.shift()!.act();
    }
  }
  return { waitsMs: waitsMs as (number | null)[], loads, peakBytes, endMs: nowMs };
}

function opened({ name, bytes, loadMs, isPinned = false, ...rest }: SimulatedModel): Running {
  return {
    name,
    bytes,
    loadMs,
    isPinned,
    keepAliveMs: rest.keepAliveMs ?? Number.POSITIVE_INFINITY,
    failing: rest.failingLoads ?? [],
    phase: "out",
    users: 0,
    waiting: [],
    waitingSinceMs: null,
    loadedMs: 0,
    usedMs: 0,
    keptUntilMs: Number.POSITIVE_INFINITY,
    loads: 0,
    startedMs: 0,
  };
}

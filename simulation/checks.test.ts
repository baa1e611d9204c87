/** Each check of a simulation detects its violation. */

import { describe, expect, test } from "bun:test";
import { InvariantError } from "../base/assert.ts";
import type { Chunk, EngineId, SequenceId } from "../scheduler/core.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import { Fleet } from "../scheduler/fleet/fleet.ts";
import type { Policy } from "../scheduler/policy.ts";
import { policyOf, withChanges } from "./baselines/policies.ts";
import { staticBudget } from "./baselines/static-budget.ts";
import { Checks } from "./checks.ts";
import type { SimulatedClient } from "./client.ts";
import { EventClock } from "./event-clock.ts";
import { deviceSpec } from "./factories.ts";
import { type HostObserver, SimulatedHost } from "./simulated-host.ts";

const nobody: HostObserver = { onStep: () => {}, onReport: () => {} };
const engine = 0 as EngineId;

function checks(policy: Policy): Checks {
  const spec = deviceSpec({ contextMax: 64 });
  const setup = {
    engine,
    spec,
    profile: linearCost(5, 0.1),
    believe: () => linearCost(5, 0.1),
    noise: null,
    settings: {},
    delayMs: 0.2,
    nextToken: () => 1,
    sharesReads: false,
    tier: null,
    record: null,
  };
  const host = new SimulatedHost(setup, new EventClock(), nobody);
  return new Checks(policy, [host], new Fleet([{ link: host, spec }]), 0.2);
}

function chunk(id: number, start: number, count: number, pages: readonly number[]): Chunk {
  return {
    sequence: id as SequenceId,
    start,
    tokens: new Int32Array(count),
    pages: Int32Array.from(pages),
    samples: [],
    adapter: 0,
  };
}

const budget20 = withChanges(policyOf("sarathi"), "small", {
  batch: staticBudget(20),
});

const cases: Readonly<Record<string, { chunks: readonly Chunk[]; isGood: boolean }>> = {
  "a prompt and a decode": { chunks: [chunk(0, 0, 17, [1, 2]), chunk(1, 16, 1, [3, 4])], isGood: true },
  "decodes alone, more than the budget": {
    chunks: Array.from({ length: 25 }, (_, i) => chunk(i, 3, 1, [i])),
    isGood: true,
  },
  "no chunk": { chunks: [], isGood: false },
  "an empty chunk": { chunks: [chunk(0, 0, 0, [])], isGood: false },
  "two chunks of one sequence": { chunks: [chunk(0, 0, 4, [1]), chunk(0, 4, 1, [2])], isGood: false },
  "a page written twice": { chunks: [chunk(0, 0, 4, [1]), chunk(1, 0, 4, [1])], isGood: false },
  "a page too many": { chunks: [chunk(0, 0, 4, [1, 2])], isGood: false },
  "a prompt beyond the budget": { chunks: [chunk(0, 0, 21, [1, 2])], isGood: false },
  "a sequence that is too long": { chunks: [chunk(0, 64, 1, [1, 2, 3, 4, 5])], isGood: false },
};

for (const [name, { chunks, isGood }] of Object.entries(cases)) {
  test(`a step with ${name} is ${isGood ? "fine" : "found"}`, () => {
    const check = (): void => checks(budget20).step(engine, { number: 1, moves: [], chunks });
    if (isGood) expect(check).not.toThrow();
    else expect(check).toThrow(InvariantError);
  });
}

test("time that goes back is found", () => {
  const watching = checks(budget20);
  watching.event(5);
  watching.event(5);
  expect(() => watching.event(4.9)).toThrow(InvariantError);
});

describe("first come, first served", () => {
  const call = (index: number): SimulatedClient => ({ index, engine }) as SimulatedClient;
  const [lost, second, third] = [call(0), call(1), call(2)];

  test("is kept by a call that was lost with its engine and sent again: it has a new place, and those after it theirs", () => {
    const watching = checks(policyOf("vllm"));
    watching.sent(lost);
    watching.sent(second);
    watching.started(lost);
    watching.sent(lost);
    watching.sent(third);
    for (const one of [second, lost, third]) expect(() => watching.started(one)).not.toThrow();
  });

  test("is broken by one that keeps the place that it had, or passes another", () => {
    const watching = checks(policyOf("vllm"));
    for (const one of [lost, second, lost]) watching.sent(one);
    watching.started(lost);
    expect(() => watching.started(second)).toThrow(InvariantError);
  });
});

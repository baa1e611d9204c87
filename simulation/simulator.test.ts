/** Simulator: virtual time, the same history for the same seed, and every call answered. */

import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../base/random.ts";
import { chatService, type EngineId } from "../scheduler/core.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import type { Policy } from "../scheduler/policy.ts";
import { shortestQueue } from "./baselines/placements.ts";
import { policies } from "./baselines/policies.ts";
import { priorityGroups } from "./baselines/preble.ts";
import { staticBudget } from "./baselines/static-budget.ts";
import { deviceSpec } from "./factories.ts";
import { noises } from "./noise.ts";
import type { SimulationReport } from "./report.ts";
import { type Fault, type SimulationSetup, simulate } from "./simulator.ts";
import type { Answer, Arrival, Workload } from "./workload.ts";

const policy: Policy = {
  name: "test",
  placement: shortestQueue,
  queue: priorityGroups(10),
  batch: staticBudget(64),
  admission: { sequencesMax: 32, watermark: 0.01 },
};

/**
 * Calls of random lengths over four prefixes, one every 10 ms on average; half of them have a second turn.
 */
class Chats implements Workload {
  readonly name = "chats";
  readonly vocabSize = 900;
  readonly #random: SeededRandom;
  readonly #calls: number;
  #made = 0;
  #atMs = 0;

  constructor(seed: number, calls: number) {
    this.#random = new SeededRandom(seed);
    this.#calls = calls;
  }

  next(): Arrival | null {
    if (this.#made === this.#calls) return null;
    this.#made += 1;
    this.#atMs += this.#random.below(20_000) / 1000;
    const prefix = this.#random.below(4) * 100;
    const length = 20 + this.#random.below(60);
    return this.#arrival(
      this.#atMs,
      Int32Array.from({ length }, (_, i) => prefix + i),
    );
  }

  after(arrival: Arrival, answer: Answer): Arrival[] {
    if (arrival.kind !== "first" || answer.tokens.length % 2 === 0) return [];
    const tokens = answer.tokens.map((token) => token % 900);
    const prompt = Int32Array.from([...arrival.promptTokens(), ...tokens]);
    return [{ ...this.#arrival(answer.finishedMs + 5, prompt), kind: "second" }];
  }

  #arrival(atMs: number, prompt: Int32Array): Arrival {
    const outputTokens = 1 + this.#random.below(12);
    const tokensMax = outputTokens + this.#random.below(2) * 5;
    return {
      atMs,
      promptTokens: () => prompt,
      outputTokens,
      tokensMax,
      cacheSalt: "",
      service: chatService,
      kind: "first",
    };
  }
}

function setup(overrides: Partial<SimulationSetup> = {}): SimulationSetup {
  const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages: 256 }) };
  return {
    workload: new Chats(1, 200),
    policy,
    devices: [device, device],
    seed: 1,
    checks: true,
    ...overrides,
  };
}

test("every call is answered in full, and the report adds up", () => {
  const report = simulate(setup());
  expect(report.isComplete).toBe(true);
  expect(report.unanswered).toBe(0);
  expect(report.calls.length).toBeGreaterThan(250);
  let tokens = 0;
  for (const call of report.calls) {
    expect(["stop", "length"]).toContain(call.finish);
    expect(call.arrivedMs).toBeLessThan(call.startedMs!);
    expect(call.startedMs!).toBeLessThanOrEqual(call.firstMs!);
    expect(call.firstMs!).toBeLessThanOrEqual(call.finishedMs);
    tokens += call.outputTokens;
  }
  const generated = report.engines.reduce((sum, engine) => sum + engine.tokensGenerated, 0);
  expect(generated).toBe(tokens);
  expect(report.tbt.count).toBe(tokens - report.calls.length);
  expect(report.ttft.count).toBe(report.calls.length);
  expect(report.queueing.count).toBe(report.calls.length);
  const cached = report.calls.reduce((sum, call) => sum + call.cachedTokens, 0);
  const prompts = report.calls.reduce((sum, call) => sum + call.promptTokens, 0);
  expect(report.hitRate).toBe(cached / prompts);
  expect(report.hitRate).toBeGreaterThan(0.5);
  for (const engine of report.engines) {
    expect(engine.steps).toBeGreaterThan(100);
    expect(engine.busyMs).toBeLessThanOrEqual(report.durationMs);
  }
});

describe("history", () => {
  const hash = (overrides: Partial<SimulationSetup> = {}): string => simulate(setup(overrides)).historyHash;

  test("the same setup has the same hash, and the same report", () => {
    expect(simulate(setup())).toEqual(simulate(setup()));
  });

  test("another seed, workload, policy or device has another hash", () => {
    const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages: 256 }) };
    const others = [
      hash({ seed: 2 }),
      hash({ workload: new Chats(2, 200) }),
      hash({ policy: { ...policy, batch: staticBudget(48) } }),
      hash({ devices: [device, { ...device, profile: linearCost(5, 0.101) }] }),
    ];
    expect(new Set([hash(), ...others]).size).toBe(5);
  });

  test("how long the code itself takes is not in it", () => {
    const { devices } = setup();
    const slow = devices.map(({ profile, spec }) => {
      const stepMs: typeof profile.stepMs = (shape) => {
        const untilMs = performance.now() + 0.05;
        while (performance.now() < untilMs);
        return profile.stepMs(shape);
      };
      const partsMs: typeof profile.partsMs = (shape, into) => profile.partsMs(shape, into);
      return { profile: { ...profile, stepMs, partsMs }, spec };
    });
    expect(hash({ devices: slow })).toBe(hash());
  });
});

test("a simulation ends early when asked to, and says so", () => {
  const limited = simulate(setup({ limitMs: 300 }));
  expect(limited.isComplete).toBe(false);
  expect(limited.calls.some((call) => call.finish === "unfinished")).toBe(true);
  const stopped = simulate(setup({ until: ({ ended }) => ended === 50 }));
  expect(stopped.isComplete).toBe(false);
  expect(stopped.latency.count).toBe(50);
  expect(stopped.unanswered).toBe(stopped.calls.length - 50);
});

test("calls that can never fit are refused, and the report says how many", () => {
  const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages: 256, contextMax: 60 }) };
  const report = simulate(setup({ devices: [device] }));
  const refused = report.calls.filter(({ finish }) => finish === "rejected");
  expect(refused.length).toBeGreaterThan(20);
  expect(report.isComplete).toBe(true);
  expect(report.unanswered).toBe(refused.length);
});

describe("every promise is kept, at every event", () => {
  for (const [name, checked] of policies) {
    test(name, () => {
      const report = simulate(setup({ policy: checked }));
      expect(report.isComplete).toBe(true);
      expect(report.historyHash).toBe(simulate(setup({ policy: checked })).historyHash);
    });
  }

  test.each(["ours", "preble", "vllm", "sglang"])(
    "%s, with so few pages that sequences are preempted",
    (name) => {
      const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages: 20 }) };
      const report = simulate(setup({ policy: policies.get(name)!, devices: [device, device] }));
      expect(report.isComplete).toBe(true);
      expect(report.engines.some(({ evictedPages, preemptions }) => evictedPages + preemptions > 0)).toBe(
        true,
      );
    },
  );

  test.each(["ours", "vllm"])("%s, with losses, a slow device and lost notices", (name) => {
    const faults: readonly Fault[] = [
      { kind: "slow", engine: 1 as EngineId, atMs: 200, factor: 3 },
      { kind: "dropNotices", engine: 0 as EngineId, atMs: 400, count: 2 },
      { kind: "lost", engine: 0 as EngineId, atMs: 700, backAfterMs: 300 },
      { kind: "lost", engine: 1 as EngineId, atMs: 1300, backAfterMs: 100 },
    ];
    const report = simulate(setup({ policy: policies.get(name)!, faults }));
    expect(report.isComplete).toBe(true);
    expect(report.calls.every(({ finish }) => finish === "stop" || finish === "length")).toBe(true);
  });
});

test("with noise every promise is kept, and the same seed has the same noise", () => {
  const noisy = (seed: number, checks = false): SimulationReport =>
    simulate(setup({ policy: policies.get("ours")!, noise: noises.rough, seed, checks }));
  const report = noisy(1, true);
  expect(report.isComplete).toBe(true);
  expect(noisy(1).historyHash).toBe(report.historyHash);
  expect(noisy(2).historyHash).not.toBe(report.historyHash);
});

test("answers do not change by what goes wrong on the way", () => {
  const tokensOf = (faults: readonly Fault[]): string[] => {
    const answers: string[] = [];
    const workload = new Chats(1, 200);
    const told: Workload = {
      name: workload.name,
      vocabSize: workload.vocabSize,
      next: () => workload.next(),
      after: (arrival, { tokens }) => {
        answers.push(`${arrival.atMs} ${tokens.join(" ")}`);
        return [];
      },
    };
    simulate(setup({ workload: told, faults }));
    return answers.sort();
  };
  expect(tokensOf([{ kind: "lost", engine: 0 as EngineId, atMs: 300, backAfterMs: 500 }])).toEqual(
    tokensOf([]),
  );
});

/** All invariants of checks.ts at once, under random workloads, machines, policies and faults. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import type { EngineId } from "../scheduler/core.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import { runs } from "../tests/support/property.ts";
import { policies, policyNames } from "./baselines/policies.ts";
import { deviceSpec } from "./factories.ts";
import { noiseNames, noises } from "./noise.ts";
import { type Fault, simulate } from "./simulator.ts";
import type { Workload } from "./workload.ts";
import { agentSessions, agentWorkload } from "./workloads/agents.ts";
import { chatLengths, chatWorkload } from "./workloads/chat.ts";
import { conversations, conversationWorkload } from "./workloads/conversation.ts";
import { merged } from "./workloads/merge.ts";
import { mixedWorkload } from "./workloads/mixed.ts";
import { tools, toolWorkload } from "./workloads/tools.ts";
import { videos, videoWorkload } from "./workloads/videos.ts";

interface Asked {
  readonly seed: number;
  readonly calls: number;
  readonly callsPerSecond: number;
}

const workloads: Readonly<Record<string, (asked: Asked) => Workload>> = {
  videos: (asked) => videoWorkload(videos(8, asked.seed), { ...asked, videosMax: 6 }),
  tools: (asked) => toolWorkload(tools(12, asked.seed), { ...asked, exponent: 1.1 }),
  conversations: (asked) =>
    conversationWorkload(conversations(asked, asked.seed), { calls: asked.calls, timeScale: 1 }),
  chats: (asked) => chatWorkload(chatLengths(50, asked.seed), asked),
  mixed: (asked) => mixedWorkload(chatLengths(50, asked.seed), asked),
  agents: ({ seed, calls, callsPerSecond }) =>
    agentWorkload(agentSessions(Math.ceil(calls / 20), seed), {
      seed,
      sessionsPerSecond: callsPerSecond / 20,
    }),
};

const ENGINES_MAX = 4;

const fault: fc.Arbitrary<Fault> = fc
  .record({
    atMs: fc.nat(10_000),
    engine: fc.nat(ENGINES_MAX - 1),
    what: fc.oneof(
      fc.record({
        kind: fc.constant("lost" as const),
        backAfterMs: fc.option(fc.nat(2000), { freq: 10 }),
      }),
      fc.record({ kind: fc.constant("slow" as const), factor: fc.constantFrom(0.5, 3, 20) }),
      fc.record({ kind: fc.constant("dropNotices" as const), count: fc.integer({ min: 1, max: 5 }) }),
    ),
  })
  .map(({ what, atMs, engine }) => ({ ...what, atMs, engine: engine as EngineId }));

const asked = fc.record({
  kinds: fc.uniqueArray(fc.constantFrom(...Object.keys(workloads)), { minLength: 1, maxLength: 2 }),
  seed: fc.nat(1_000_000),
  calls: fc.integer({ min: 1, max: 60 }),
  callsPerSecond: fc.constantFrom(1, 5, 20, 200),
  policy: fc.oneof(fc.constant("ours"), fc.constantFrom(...policyNames)),
  engines: fc.integer({ min: 1, max: ENGINES_MAX }),
  pages: fc.constantFrom(640, 1500, 5000),
  slots: fc.constantFrom(null, 2, 16, 100),
  linkDelayMs: fc.constantFrom(0, 0.2, 30),
  faults: fc.array(fault, { maxLength: 4 }),
  isPublic: fc.boolean(),
  noise: fc.constantFrom(null, ...noiseNames),
});

/** Regression: a chat that cannot keep its target waited beside an offline prompt that made way for it. */
const slowAtOnce: Fault = { kind: "slow", factor: 20, atMs: 0, engine: 0 as EngineId };
const machine = { policy: "ours", engines: 1, pages: 640, slots: null, linkDelayMs: 0 } as const;
const load = { kinds: ["mixed"], seed: 0, calls: 8, callsPerSecond: 1 as const };
const found = { ...load, ...machine, faults: [slowAtOnce], isPublic: false, noise: null };

test("the scheduler keeps its promises", () => {
  const rule = fc.property(
    asked,
    ({ kinds, policy, engines, pages, slots, linkDelayMs, faults, isPublic, noise, ...rest }) => {
      const states = slots === null ? {} : { states: { slots, bytes: 1 } };
      const device = {
        profile: linearCost(5, 0.05),
        spec: deviceSpec({ pages, contextMax: 16 * pages, stepTokensMax: 65_536, ...states }),
      };
      const workload = () =>
        merged(
          "asked",
          kinds.map((kind) => ({ workload: workloads[kind]!(rest) })),
        );
      // Beginning of the first prompt, which other prompts share.
      const text = isPublic ? workload().next()?.promptTokens().subarray(0, 500) : undefined;
      const report = simulate({
        workload: workload(),
        publicTexts: text === undefined ? [] : [Array.from(text)],
        policy: policies.get(policy)!,
        devices: Array.from({ length: engines }, () => device),
        seed: rest.seed,
        linkDelayMs,
        noise: noise === null ? null : noises[noise],
        faults: faults.filter(({ engine }) => engine < engines),
        checks: true,
      });
      expect(report.isComplete).toBe(true);
    },
  );
  fc.assert(rule, { ...runs(8), examples: [[found]] });
});

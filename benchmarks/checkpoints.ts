/**
 * Hits of a prefix cache with checkpoints, in virtual time: of the prompt tokens that an attention model finds
 * cached in the same memory, the share that a recurrent model finds. Its states take 15 % of that memory, those
 * of running sequences included; a state is as large as the keys and values of 1,700 tokens.
 *
 *   bun benchmarks/checkpoints.ts [--tokens 700000] [--seed 1] [--only mixed] [--json]
 */

import { parseArgs } from "node:util";
import { GreedyDual } from "../scheduler/cache/checkpoints.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import { ours } from "../scheduler/policies.ts";
import type { Policy } from "../scheduler/policy.ts";
import {
  BranchesAndEnds,
  EndsOnly,
  RecentlyUsed,
  withCheckpoints,
} from "../simulation/baselines/checkpoint-policies.ts";
import { deviceSpec } from "../simulation/factories.ts";
import { simulate } from "../simulation/simulator.ts";
import type { Workload } from "../simulation/workload.ts";
import { merged } from "../simulation/workloads/merge.ts";
import {
  agentSessions,
  chatSessions,
  documentSessions,
  type SessionLoad,
} from "../simulation/workloads/sessions.ts";

const PAGE_TOKENS = 16;
const STATE_TOKENS = 1700;
const STATE_SHARE = 0.15;

const { values } = parseArgs({
  options: {
    tokens: { type: "string", default: "700000" },
    seed: { type: "string", default: "1" },
    only: { type: "string" },
    json: { type: "boolean" },
  },
});
const memoryTokens = Number(values.tokens);
const seed = Number(values.seed);

const load = (sessions: number, gapMs: number): SessionLoad => ({ seed, sessions, gapMs });
const workloads: Readonly<Record<string, () => Workload>> = {
  "chats of 20 turns": () => chatSessions(load(60, 5000)),
  "the same, thoughts dropped": () => chatSessions(load(60, 5000), true),
  "agents with two subagents": () => agentSessions(load(40, 5000)),
  "eight questions on a document": () => documentSessions(load(40, 10_000)),
  mixed: () =>
    merged("mixed", [
      { workload: chatSessions(load(30, 10_000)) },
      { workload: agentSessions(load(15, 15_000)) },
      { workload: documentSessions(load(15, 20_000)) },
    ]),
};

const policies: readonly Policy[] = [
  withCheckpoints("ours", () => new GreedyDual()),
  withCheckpoints("branches and ends", () => new BranchesAndEnds()),
  withCheckpoints("ends only", () => new EndsOnly()),
  withCheckpoints("ours, LRU", () => new RecentlyUsed()),
];

/** Cached prompt tokens of a run, and how many prompt tokens there were. */
function measure(open: () => Workload, policy: Policy, slots: number | null) {
  const tokens = slots === null ? memoryTokens : memoryTokens - slots * STATE_TOKENS;
  const spec = deviceSpec({
    pages: Math.floor(tokens / PAGE_TOKENS),
    pageTokens: PAGE_TOKENS,
    contextMax: 65_536,
    ...(slots === null ? {} : { states: { slots, bytes: 1 } }),
  });
  const devices = [{ profile: linearCost(5, 0.05), spec }];
  const report = simulate({ workload: open(), policy, devices, seed });
  if (!report.isComplete) throw new Error("a call did not end");
  const cached = report.calls.reduce((sum, call) => sum + call.cachedTokens, 0);
  return { cached, hitRate: report.hitRate };
}

const slots = Math.floor((STATE_SHARE * memoryTokens) / STATE_TOKENS);
const wanted = Object.entries(workloads).filter(([name]) => (values.only ?? name) === name);
const rows = wanted.map(([workload, open]) => {
  const attention = measure(open, ours(), null);
  const shares = policies.map((policy) => [
    policy.name,
    measure(open, policy, slots).cached / attention.cached,
  ]);
  return { workload, hitRate: attention.hitRate, ...Object.fromEntries(shares) };
});

if (values.json) console.log(JSON.stringify({ memoryTokens, slots, rows }));
else {
  const percent = (share: number): string => `${(100 * share).toFixed(1)} %`;
  const names = policies.map(({ name }) => name);
  console.log(
    `${slots} state slots beside ${memoryTokens - slots * STATE_TOKENS} tokens of keys and values\n`,
  );
  console.log(`| Workload | attention: cached | ${names.join(" | ")} |\n|${"---|".repeat(names.length + 2)}`);
  for (const { workload, hitRate, ...shares } of rows)
    console.log(
      `| ${workload} | ${percent(hitRate)} | ${Object.values(shares)
        .map((share) => percent(share as number))
        .join(" | ")} |`,
    );
}

/** Job on a GPU that holds few of its sequences: the best step size depends on how often one ends. */

import { expect, test } from "bun:test";
import { openProfile } from "../scheduler/cost/profiles.ts";
import { ours } from "../scheduler/policies.ts";
import type { Policy } from "../scheduler/policy.ts";
import { withChanges } from "./baselines/policies.ts";
import { staticBudget } from "./baselines/static-budget.ts";
import { simulate } from "./simulator.ts";
import { jobPrompts, jobWorkload } from "./workloads/job.ts";

/** Runs a job in arrival order of its prompts; returns prompts per second. */
function rateOf(policy: Policy, ownTokens: number, outputTokens: number): number {
  const shape = { sharers: { exactly: 4 }, instructionTokens: 0, prefixTokens: 200, varies: true };
  const prompts = jobPrompts({ ...shape, prompts: 200, ownTokens, outputTokens }, 1);
  const { profile, spec } = openProfile("rtx4090");
  const workload = jobWorkload(prompts, [...prompts.keys()], null);
  const { calls, durationMs } = simulate({ workload, policy, devices: [{ profile, spec }], seed: 1 });
  return calls.length / (durationMs / 1000);
}

test.each([
  [2000, 100],
  [1000, 100],
  [2000, 500],
  [500, 10],
])(
  "steps of prompts with %d tokens and answers with %d are within 5 % of the best of any one size",
  (own, out) => {
    const fixed = [256, 512, 1024, 2048, 4096].map((size) =>
      rateOf(withChanges(ours(), `steps of ${size}`, { batch: staticBudget(size) }), own, out),
    );
    expect(rateOf(ours(), own, out)).toBeGreaterThan(0.95 * Math.max(...fixed));
  },
);

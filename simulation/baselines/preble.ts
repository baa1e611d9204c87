import { servedAdmission } from "../../scheduler/engine/admission-rule.ts";
import type { Policy, QueueBaseline, StepBaseline } from "../../scheduler/policy.ts";
import { plainAdmission } from "./engine-rules.ts";
import { prebleE2 } from "./preble-placement.ts";
import { PriorityGroups } from "./priority-groups.ts";
import { staticBudget, staticPass } from "./static-budget.ts";
import { cached, decodesAlone, wholePrompts } from "./vllm.ts";

/** Priority groups by the share of a prompt that is cached (Preble, arXiv:2407.00023 §3.3). */
export function priorityGroups(groups: number): QueueBaseline {
  return { kind: "baseline", open: (lookUp) => new PriorityGroups(groups, lookUp) };
}

/** Preble as published. */
export const preble: Policy = {
  name: "preble",
  placement: prebleE2({ adjusts: true, balances: true, knowsEvictions: true }),
  queue: priorityGroups(10),
  batch: staticBudget(512),
  ...cached,
  admission: {
    ...cached.admission,
    watermark: 0.01,
    rule: {
      ...plainAdmission,
      headroom: servedAdmission.headroom,
      backOffSteps: servedAdmission.backOffSteps,
    },
  },
};

/**
 * Preble's code, where it differs from the paper: no eviction costs, no KV events, no rebalancing, and
 * prompt-first steps while half of the pages is free.
 */
export const prebleCode: Policy = {
  ...preble,
  name: "preble-code",
  placement: prebleE2({ adjusts: false, balances: false, knowsEvictions: false }),
  batch: populateFast(512, 0.5),
};

/** Prompt-first steps while more than `share` of the pages is free, else a static budget. */
export function populateFast(stepTokens: number, share: number): StepBaseline {
  return {
    kind: "baseline",
    stepTokens,
    isStallFree: false,
    open: (stepTokens, { stepTokensMax }) => {
      const populating = [wholePrompts(stepTokensMax, stepTokensMax), decodesAlone];
      const full = [staticPass(stepTokens)];
      return { passes: (available, total) => (available > share * total ? populating : full) };
    },
  };
}

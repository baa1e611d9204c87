import type { EngineCosts } from "../../cost/cost-model.ts";
import type { DeviceSpec } from "../../device.ts";
import type { BatchPolicy } from "../../policy.ts";
import type { StepPass, StepRule } from "./step-rule.ts";
import { TimeBudget } from "./time-budget.ts";

/** The rule of a policy. */
export function openStepRule(policy: BatchPolicy, spec: DeviceSpec, costs: EngineCosts): StepRule {
  if (policy.kind === "baseline") return policy.open(policy.stepTokens, spec);
  let lastStreamMs = Number.NEGATIVE_INFINITY;
  const company = {
    quietMs: Number.POSITIVE_INFINITY,
    waysOut: spec.waysOut ?? 1,
    bulkTileMs: Number.NEGATIVE_INFINITY,
  };
  const pass: StepPass = {
    hasDecodes: true,
    hasPrompts: true,
    open: ({ running, backlog, nowMs, tokensMax }) => {
      if (running.some(({ objective }) => objective.isInteractive)) lastStreamMs = nowMs;
      company.quietMs = nowMs - lastStreamMs;
      return new TimeBudget(policy, running, costs, nowMs, backlog, tokensMax, company);
    },
  };
  const passes = [pass];
  return { passes: () => passes };
}

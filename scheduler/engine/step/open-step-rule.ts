import type { EngineCosts } from "../../cost/cost-model.ts";
import type { DeviceSpec } from "../../device.ts";
import type { BatchPolicy } from "../../policy.ts";
import type { StepPass, StepRule } from "./step-rule.ts";
import { TimeBudget } from "./time-budget.ts";

/** Opens the rule of a policy. */
export function openStepRule(policy: BatchPolicy, spec: DeviceSpec, costs: EngineCosts): StepRule {
  if (policy.kind === "baseline") return policy.open(policy.stepTokens, spec);
  let lastStreamMs = Number.NEGATIVE_INFINITY;
  const history = {
    quietMs: Number.POSITIVE_INFINITY,
    abortPoints: spec.abortPoints ?? 1,
    offlineTileMs: Number.NEGATIVE_INFINITY,
  };
  const pass: StepPass = {
    hasDecodes: true,
    hasPrompts: true,
    open: (view) => {
      const { running, nowMs } = view;
      if (running.some(({ objective }) => objective.isInteractive)) lastStreamMs = nowMs;
      history.quietMs = nowMs - lastStreamMs;
      return new TimeBudget(policy, costs, view, history);
    },
  };
  const passes = [pass];
  return { passes: () => passes };
}

import type { EngineCosts } from "../../cost/cost-model.ts";
import type { DeviceSpec } from "../../device.ts";
import type { BatchPolicy } from "../../policy.ts";
import type { Backlog, SequenceView, StepBudget } from "./step-budget.ts";
import { TimeBudget } from "./time-budget.ts";

/** What a step is planned from. */
export interface StepView {
  /** In order of arrival. */
  readonly running: readonly SequenceView[];
  readonly backlog: Backlog;
  readonly nowMs: number;
  /** Most tokens of a step whose size the cost model decides. */
  readonly tokensMax: number;
}

/** One way to fill a step. */
export interface StepPass {
  /** Whether decodes get their pages, for which others may be preempted, and are in the step. */
  readonly hasDecodes: boolean;
  /** Whether chunks of prompts are in the step, and sequences are admitted. */
  readonly hasPrompts: boolean;
  /** The budget of one step. */
  open(view: StepView): StepBudget;
}

/** Port: what steps are made of. One object serves one engine. */
export interface StepRule {
  /** What is tried in turn, until a pass has anything to compute. */
  passes(pagesAvailable: number, pagesTotal: number): readonly StepPass[];
}

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

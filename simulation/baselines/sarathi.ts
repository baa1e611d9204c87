import type { Policy } from "../../scheduler/policy.ts";
import { staticBudget } from "./static-budget.ts";
import { vllm } from "./vllm.ts";

/** Sarathi-Serve (arXiv:2403.02310) with a static budget of `stepTokens`. */
export function sarathi(stepTokens: number): Policy {
  return { ...vllm, name: `sarathi-${stepTokens}`, batch: staticBudget(stepTokens) };
}

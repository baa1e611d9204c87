/** Ours as it serves, and every policy that it has to beat. */

import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { policyOf, withChanges } from "../../simulation/baselines/policies.ts";
import { sarathi } from "../../simulation/baselines/sarathi.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";

/** As it serves without `--tbt-ms`. */
export const own: Policy = ours();

/** As it serves with `--tbt-ms`. */
export function ownWithTarget(tbtMs: number): Policy {
  return withChanges(ours(tbtMs), `ours-${tbtMs}-ms`, {});
}

/** Round robin with longest prefix first, as SGLang's chunks were when it got them: 2,048 tokens. */
const longestPrefix: Policy = withChanges(policyOf("sglang-chunked"), "longest-prefix", {
  batch: staticBudget(2048),
});

/** Every rival, each with the limits that it runs with. */
export const rivals: readonly Policy[] = [
  policyOf("vllm"),
  policyOf("vllm-chunked"),
  policyOf("orca"),
  policyOf("sglang"),
  policyOf("sglang-chunked"),
  longestPrefix,
  policyOf("sarathi"),
  withChanges(sarathi(256), "sarathi-256", {}),
  withChanges(sarathi(2048), "sarathi-2048", {}),
  policyOf("preble"),
  policyOf("preble-code"),
];

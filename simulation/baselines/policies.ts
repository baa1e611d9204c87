import { ours } from "../../scheduler/policies.ts";
import type { Policy, QueueBaseline } from "../../scheduler/policy.ts";
import { batchllm } from "./batchllm.ts";
import { LongestPrefix } from "./longest-prefix.ts";
import { roundRobin } from "./placements.ts";
import { preble, prebleCode } from "./preble.ts";
import { staticBudget } from "./static-budget.ts";
import { cached, promptsFirst, vllm, vllmChunked } from "./vllm.ts";

/**
 * Iteration-level scheduling alone (Orca, OSDI 2022): whole prompts among decodes, few sequences at a time.
 */
const orca: Policy = {
  ...vllm,
  name: "orca",
  batch: staticBudget(2 ** 20),
  admission: { ...vllm.admission, sequencesMax: 16, watermark: 0 },
};

/** Sarathi-Serve (arXiv:2403.02310) with a static budget of `stepTokens`. */
export function sarathi(stepTokens: number): Policy {
  return { ...vllm, name: `sarathi-${stepTokens}`, batch: staticBudget(stepTokens) };
}

/** Queue order: longest cached prefix first. */
export const longestPrefix: QueueBaseline = { kind: "baseline", open: (lookUp) => new LongestPrefix(lookUp) };

/** SGLang (arXiv:2312.07104) as Preble's authors ran it: independent instances. */
export const sglang: Policy = {
  name: "sglang",
  placement: roundRobin,
  queue: longestPrefix,
  batch: promptsFirst(33_086),
  ...cached,
};

/** SGLang with chunked prefill, to isolate Preble's gain from chunking. */
export const sglangChunked: Policy = { ...sglang, name: "sglang-chunked", batch: staticBudget(512) };

/** Copies a policy under another name with some parts replaced: a step of an ablation. */
export function withChanges(policy: Policy, name: string, changes: Partial<Omit<Policy, "name">>): Policy {
  return { ...policy, ...changes, name };
}

/** Policies by name: the baselines and ours. */
export const policies: ReadonlyMap<string, Policy> = new Map(
  [
    vllm,
    vllmChunked(),
    orca,
    sglang,
    sglangChunked,
    withChanges(sarathi(512), "sarathi", {}),
    preble,
    prebleCode,
    batchllm,
    ours(),
  ].map((policy) => [policy.name, policy]),
);

/** Policy names in the order of the table in docs/papers. */
export const policyNames: readonly string[] = [...policies.keys()];

/** Returns a policy by its name; throws RangeError with a message for people. */
export function policyOf(name: string): Policy {
  const policy = policies.get(name);
  if (policy === undefined) {
    throw new RangeError(`There is no policy ${name}; there are ${policyNames.join(", ")}.`);
  }
  return policy;
}

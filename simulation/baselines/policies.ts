import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { batchllm } from "./batchllm.ts";
import { orca } from "./orca.ts";
import { preble, prebleCode } from "./preble.ts";
import { sarathi } from "./sarathi.ts";
import { sglang, sglangChunked } from "./sglang.ts";
import { vllm, vllmChunked } from "./vllm.ts";

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

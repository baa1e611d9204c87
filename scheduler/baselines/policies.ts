import { ours, withChanges } from "../policies.ts";
import { type AdmissionPolicy, type Policy, staticBudget } from "../policy.ts";
import { prebleE2 } from "./preble.ts";
import { roundRobin } from "./round-robin.ts";

/** vLLM 0.2 as Sarathi-Serve's authors ran it: no prefix cache, one percent of the pages kept free. */
const uncached: AdmissionPolicy = {
  sequencesMax: 128,
  watermark: 0.01,
  headroom: false,
  cache: false,
  prefixPending: false,
  overtakes: false,
  backOff: false,
};

/** vLLM 0.19 and SGLang: a prefix cache, and pages to the last. */
const cached: AdmissionPolicy = { ...uncached, sequencesMax: 256, watermark: 0, cache: true };

const guarded: AdmissionPolicy = { ...cached, watermark: 0.01, headroom: true, backOff: true };

/** Whole prompts in steps of their own, first come, first served. */
const vllm: Policy = {
  name: "vllm",
  placement: roundRobin,
  queue: { kind: "fcfs" },
  batch: { kind: "promptsFirst", stepTokens: 8192 },
  admission: uncached,
};

const vllmChunked: Policy = { ...vllm, name: "vllm-chunked", batch: staticBudget(2048), admission: cached };

/** Iteration-level scheduling alone: whole prompts among decodes, few sequences at once. */
const orca: Policy = {
  ...vllm,
  name: "orca",
  batch: staticBudget(2 ** 20),
  admission: { ...uncached, sequencesMax: 16, watermark: 0 },
};

const sglang: Policy = {
  name: "sglang",
  placement: roundRobin,
  queue: { kind: "longestPrefix" },
  batch: { kind: "promptsFirst", stepTokens: 33_086 },
  admission: cached,
};

/** What Preble gains by chunking alone. */
const sglangChunked: Policy = { ...sglang, name: "sglang-chunked", batch: staticBudget(512) };

/** Sarathi-Serve with a static budget of `stepTokens`. */
export function sarathi(stepTokens: number): Policy {
  return { ...vllm, name: `sarathi-${stepTokens}`, batch: staticBudget(stepTokens) };
}

const preble: Policy = {
  name: "preble",
  placement: prebleE2({ adjusts: true, balances: true, knowsEvictions: true }),
  queue: { kind: "groups", groups: 10 },
  batch: staticBudget(512),
  admission: guarded,
};

/** What Preble's code does where it differs from the paper: no costs of eviction, no notices, no rebalancing, and
 *  whole prompts first while half of the pages is available. */
const prebleCode: Policy = {
  ...preble,
  name: "preble-code",
  placement: prebleE2({ adjusts: false, balances: false, knowsEvictions: false }),
  batch: { kind: "fixed", stepTokens: 512, bypass: 0.5 },
};

/** Every policy by its name. */
export const policies: ReadonlyMap<string, Policy> = new Map(
  [
    vllm,
    vllmChunked,
    orca,
    sglang,
    sglangChunked,
    withChanges(sarathi(512), "sarathi", {}),
    preble,
    prebleCode,
    ours(),
  ].map((policy) => [policy.name, policy]),
);

/** The names in the order of the table in docs/papers. */
export const policyNames: readonly string[] = [...policies.keys()];

/** A policy by its name; throws RangeError, whose message is for people. */
export function policyOf(name: string): Policy {
  const policy = policies.get(name);
  if (policy === undefined) {
    throw new RangeError(`There is no policy ${name}; there are ${policyNames.join(", ")}.`);
  }
  return policy;
}

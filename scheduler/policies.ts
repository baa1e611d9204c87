import { type AdmissionPolicy, type E2Policy, type Policy, staticBudget } from "./policy.ts";

/** Copies a policy under another name with some parts exchanged: a step of an ablation. */
export function withChanges(policy: Policy, name: string, changes: Partial<Omit<Policy, "name">>): Policy {
  return { ...policy, ...changes, name };
}

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
  placement: { kind: "turn" },
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
  placement: { kind: "turn" },
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

/** E2 as the paper has it. */
const e2AsPublished: E2Policy = {
  kind: "e2",
  load: "window",
  windowMs: 180_000,
  eviction: "rate",
  notices: true,
  spill: false,
  harm: false,
  moves: false,
  rebalance: { ratio: 1.5, marginMs: 1000 },
  replicate: { ratio: 2 },
  imbalance: 0.7,
  gang: "alone",
};

const preble: Policy = {
  name: "preble",
  placement: e2AsPublished,
  queue: { kind: "groups", groups: 10 },
  batch: staticBudget(512),
  admission: guarded,
};

/** What Preble's code does where it differs from the paper: no costs of eviction, no notices, no rebalancing, and
 *  whole prompts first while half of the pages is available. */
const prebleCode: Policy = {
  ...preble,
  name: "preble-code",
  placement: { ...e2AsPublished, eviction: "none", notices: false, rebalance: null },
  batch: { kind: "fixed", stepTokens: 512, bypass: 0.5 },
};

/**
 * Bunting's own, as it serves and as it is measured. `tbtMs` is the target of streams that ask for none themselves; null,
 * what serves without `--tbt-ms`: they have none, and steps are as large as delays everybody least. How large steps are and how
 * many sequences run is up to the device: its cost model, its memory, and what it takes in one step.
 */
export function ours(tbtMs: number | null = null): Policy {
  return {
    name: "ours",
    placement: {
      ...e2AsPublished,
      load: "outstanding",
      spill: true,
      harm: true,
      moves: true,
      imbalance: null,
      gang: "list",
    },
    queue: { kind: "lanes", groups: 10, credits: [8, 4, 1], tenantSlack: 4096 },
    batch: {
      kind: "target",
      tbtMs,
      stepMs: 100,
      margin: 0.02,
      starvationMs: 2000,
      skipsMax: 3,
    },
    admission: { ...guarded, sequencesMax: null, prefixPending: true, overtakes: true },
  };
}

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

/** Systems that run a job: vLLM and SGLang in order of arrival, BatchLLM as published, and ours as served. */

import { BatchAdmission } from "../../scheduler/batch/batch-admission.ts";
import { orderOf } from "../../scheduler/batch/groups.ts";
import { oneLevel } from "../../scheduler/batch/one-level.ts";
import { PrefixTree, type PromptTable, promptTable } from "../../scheduler/batch/prefix-tree.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { algorithm1, batchllm, byRatio } from "../../simulation/baselines/batchllm.ts";
import { sglangChunked, withChanges } from "../../simulation/baselines/policies.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { cached, promptsFirst, vllmChunked, vllm as vllmWhole } from "../../simulation/baselines/vllm.ts";
import type { Workload } from "../../simulation/workload.ts";
import { type JobPrompt, type JobShape, jobPrompts, jobWorkload } from "../../simulation/workloads/job.ts";
import { promptOf } from "../../simulation/workloads/parts.ts";
import { devices } from "./bench.ts";

/** Pages of an engine, of 16 tokens each. */
export const PAGES = 25_000;

/** Job with its prefix tree, known before it runs. */
export interface KnownJob {
  readonly prompts: readonly JobPrompt[];
  readonly table: PromptTable;
  readonly tree: PrefixTree;
}

export function known(shape: JobShape, seed: number): KnownJob {
  const prompts = jobPrompts(shape, seed);
  const table = promptTable(prompts.map(({ parts }) => promptOf(parts)()));
  return { prompts, table, tree: new PrefixTree(table) };
}

/** System that runs a job. */
export interface System {
  readonly name: string;
  readonly policy: Policy;
  readonly workload: (job: KnownJob, engines: number) => Workload;
  /** True if its attention reads a shared prefix once for all decodes of a group, false if once for each. */
  readonly sharesReads: boolean;
}

const asTheyCome = ({ prompts }: KnownJob): Workload => jobWorkload(prompts, [...prompts.keys()], null);

function asPublished({ prompts, table, tree }: KnownJob): Workload {
  const lengthOf = (prompt: number): number => table.from[prompt + 1]! - table.from[prompt]!;
  const groups = byRatio(algorithm1(tree), lengthOf);
  return jobWorkload(
    prompts,
    groups.flatMap(({ members }) => members),
    null,
  );
}

export function asServed({ prompts, table, tree }: KnownJob, engines: number, pages = PAGES): Workload {
  const order = orderOf(tree, oneLevel(tree), () => 1);
  const items = [...order.prompts].map((prompt, place) => ({
    newTokens: table.from[prompt + 1]! - table.from[prompt]! - order.sharedTokens[place]!,
    tokensMax: 1024,
  }));
  const [{ spec }] = devices("a100", 1) as [ReturnType<typeof devices>[number]];
  const room = {
    tokens: engines * pages * spec.pageTokens,
    sequences: engines * spec.stepChunksMax,
    stepTokens: engines * spec.stepTokensMax,
  };
  return jobWorkload(prompts, order.prompts, new BatchAdmission(items, room));
}

export const vllm: System = { name: "vllm", policy: vllmChunked(), workload: asTheyCome, sharesReads: false };
/** vLLM with its default settings at the time of the paper. */
export const vllmInSmallSteps: System = {
  ...vllm,
  name: "vllm, steps of 512",
  policy: withChanges(vllmChunked(), "512", { batch: staticBudget(512) }),
};
/** vLLM as released with a prefix cache. */
export const vllmWholePrompts: System = {
  ...vllm,
  name: "vllm, whole prompts",
  policy: withChanges(vllmWhole, "whole prompts", { batch: promptsFirst(8192), ...cached }),
};
export const sglang: System = {
  name: "sglang",
  policy: withChanges(sglangChunked, "sglang", { batch: staticBudget(2048) }),
  workload: asTheyCome,
  sharesReads: false,
};
export const published: System = {
  name: "batchllm",
  policy: batchllm,
  workload: asPublished,
  sharesReads: true,
};
export const served: System = { name: "ours", policy: ours(), workload: asServed, sharesReads: true };

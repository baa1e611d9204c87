import type { Policy, QueueBaseline } from "../../scheduler/policy.ts";
import { LongestPrefix } from "./longest-prefix.ts";
import { roundRobin } from "./round-robin.ts";
import { staticBudget } from "./static-budget.ts";
import { cached, promptsFirst } from "./vllm.ts";

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

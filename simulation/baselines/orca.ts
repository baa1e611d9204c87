import type { Policy } from "../../scheduler/policy.ts";
import { staticBudget } from "./static-budget.ts";
import { vllm } from "./vllm.ts";

/**
 * Iteration-level scheduling alone (Orca, OSDI 2022): whole prompts among decodes, few sequences at a time.
 */
export const orca: Policy = {
  ...vllm,
  name: "orca",
  batch: staticBudget(2 ** 20),
  admission: { ...vllm.admission, sequencesMax: 16, watermark: 0 },
};

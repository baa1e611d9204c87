import type { PrefixGroup } from "../../scheduler/batch/groups.ts";
import { type NodeIndex, type PrefixTree, ROOT } from "../../scheduler/batch/prefix-tree.ts";
import { servedAdmission } from "../../scheduler/engine/admission-rule.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { plainAdmission } from "./engine-rules.ts";
import { staticBudget } from "./static-budget.ts";
import { cached, vllm } from "./vllm.ts";

/** Mutable tree node. */
interface Branch {
  /** Tokens of the parent branch, which the tokens of this one follow. */
  tokens: number;
  /** Prompts that end at or below the node. */
  prompts: number;
  readonly ends: number[];
  children: Branch[];
}

/**
 * Groups prompts by BatchLLM's Algorithm 1 (arXiv:2412.03594 §4.2). Bottom up, it cuts a branch from its
 * parent with a copy of the parent's tokens where that saves more than the copy costs. The choice is greedy.
 * It charges the whole copy even if no prompt is left at the parent, and ignores savings further up.
 */
export function algorithm1(tree: PrefixTree): PrefixGroup[] {
  const branches: Branch[] = Array.from({ length: tree.nodes }, (_, node) => ({
    tokens: tree.edgeTokens(node),
    prompts: tree.prompts[node]!,
    ends: [...tree.promptsAt(node)],
    children: [],
  }));
  for (let node = 1; node < tree.nodes; node++) {
    branches[tree.parent[node]!]!.children.push(branches[node]!);
  }
  for (const branch of branches.toReversed()) {
    for (const child of [...branch.children]) forkFrom(branch, child);
  }
  const groups = branches[ROOT as NodeIndex]!.ends.map((prompt) => ({ prefixTokens: 0, members: [prompt] }));
  for (const { tokens, children, ends } of branches[ROOT]!.children) {
    const members = [...ends];
    const below = [...children];
    for (let branch = below.pop(); branch !== undefined; branch = below.pop()) {
      members.push(...branch.ends);
      below.push(...branch.children);
    }
    if (members.length === 1) groups.push({ prefixTokens: 0, members });
    else if (members.length > 1)
      groups.push({ prefixTokens: tokens, members: members.sort((a, b) => a - b) });
  }
  return groups.sort((a, b) => a.members[0]! - b.members[0]!);
}

function forkFrom(branch: Branch, child: Branch): void {
  const staying: Branch[] = [];
  for (const grandchild of child.children) {
    if ((grandchild.prompts - 1) * grandchild.tokens <= child.tokens) {
      staying.push(grandchild);
      continue;
    }
    grandchild.tokens += child.tokens;
    child.prompts -= grandchild.prompts;
    branch.children.push(grandchild);
  }
  child.children = staying;
}

/**
 * Sorts groups by descending R = 1 / (prefix + sum of the suffixes) (§4.3.2, with equally long answers).
 * `lengthOf`: tokens of a prompt.
 */
export function byRatio(groups: readonly PrefixGroup[], lengthOf: (prompt: number) => number): PrefixGroup[] {
  const tokensOf = ({ prefixTokens, members }: PrefixGroup): number =>
    members.reduce((sum, prompt) => sum + lengthOf(prompt) - prefixTokens, prefixTokens);
  const sized = groups.map((group) => ({ group, tokens: tokensOf(group) }));
  return sized.sort((a, b) => a.tokens - b.tokens).map(({ group }) => group);
}

/**
 * Engine of BatchLLM (§4.3): its authors' vLLM with chunks of 2048 tokens, where only memory limits the
 * sequences. A prefix that group members wait for is computed once and kept for them.
 */
export const batchllm: Policy = {
  name: "batchllm",
  placement: vllm.placement,
  queue: vllm.queue,
  batch: staticBudget(2048),
  admission: {
    ...cached.admission,
    sequencesMax: null,
    rule: { ...plainAdmission, findInFlightPrefix: servedAdmission.findInFlightPrefix },
  },
};

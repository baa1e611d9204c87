import { type PrefixTree, ROOT } from "./prefix-tree.ts";

/** Choice of nodes whose tokens are computed once, for all prompts that end at or below them. */
export interface OneLevel {
  /**
   * 1 for opened nodes, by node. A prompt's group is that of the nearest opened node above its end; without
   * one it is alone.
   */
  readonly isOpened: Uint8Array;
  /** Tokens saved when each group computes its prefix once and shares nothing with other groups. */
  readonly savedTokens: number;
}

/**
 * Chooses the groups that save most when each prompt shares one prefix with one group. This is an exact
 * optimum; BatchLLM's Algorithm 1 (arXiv:2412.03594 §4.2, here in simulation/baselines/batchllm.ts) is a
 * greedy choice. For a node v whose nearest opened ancestor is at depth d, v and its subtree save at most:
 *
 *     best(v, d) = max(keep, open);
 *     keep = ends(v) d + sum over children c of best(c, d);
 *     open = ends(v) depth(v) + sum over children c of best(c, depth(v)) - depth(v).
 *
 * Opening v costs one computation of its tokens. The depth d is that of an ancestor, so v has as many values
 * as ancestors: in total at most the tokens of all prompts. keep grows with d and open does not depend on it.
 * So v is opened below its first ancestors up to some level, and one number per node holds the choice.
 */
export function oneLevel(tree: PrefixTree): OneLevel {
  const { nodes, parent, depth, ends, prompts } = tree;
  const level = new Int32Array(nodes);
  for (let node = 1; node < nodes; node++) level[node] = level[parent[node]!]! + 1;

  /** Number of ancestors, from the root on, below which the node is opened, by node. */
  const opensBelow = new Int32Array(nodes);
  /**
   * Sums of the children's best savings so far, by level of the current node's ancestor, then by level of the
   * nearest opened node. Nodes that can only be kept are left out. The heaviest child comes first here, so
   * that few sums exist at a time.
   */
  const sums: (Float64Array | undefined)[] = [];
  /** Prompts that end at the node or at a child that cannot be opened, by node. */
  const kept = ends.slice();
  for (let node = nodes - 1; node > ROOT; node--) {
    const above = parent[node]!;
    if (prompts[node]! < 2) {
      kept[above]! += 1;
      continue;
    }
    const levels = level[node]!;
    const sum = sums[levels];
    sums[levels] = undefined;
    const open = kept[node]! * depth[node]! + (sum?.[levels] ?? 0) - depth[node]!;
    const best = sum ?? new Float64Array(levels);
    for (let at = above, l = levels - 1; l >= 0; l--, at = parent[at]!) {
      const keep = kept[node]! * depth[at]! + best[l]!;
      if (open > keep && opensBelow[node] === 0) opensBelow[node] = l + 1;
      best[l] = Math.max(open, keep);
    }
    const toParent = sums[levels - 1];
    if (toParent === undefined) sums[levels - 1] = best;
    else for (let l = 0; l < levels; l++) toParent[l]! += best[l]!;
  }
  return { isOpened: opened(tree, level, opensBelow), savedTokens: sums[0]?.[0] ?? 0 };
}

function opened({ nodes, parent }: PrefixTree, level: Int32Array, opensBelow: Int32Array): Uint8Array {
  const isOpened = new Uint8Array(nodes);
  /** Level of the nearest opened node, itself included, by node. */
  const nearest = new Int32Array(nodes);
  for (let node = 1; node < nodes; node++) {
    const above = nearest[parent[node]!]!;
    isOpened[node] = above < opensBelow[node]! ? 1 : 0;
    nearest[node] = isOpened[node] === 1 ? level[node]! : above;
  }
  return isOpened;
}

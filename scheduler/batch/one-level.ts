import { type PrefixTree, ROOT } from "./prefix-tree.ts";

/** A choice of nodes whose tokens are computed once, for all prompts that end at them or below. */
export interface OneLevel {
  /** By node: 1 where it was opened. A prompt's group is that of the nearest opened node above its end; without any it is
   *  alone. */
  readonly isOpened: Uint8Array;
  /** Tokens that need not be computed if each group computes its prefix once, and shares nothing with other groups. */
  readonly savedTokens: number;
}

/**
 * The groups that save most when each prompt shares one prefix with one group: an exact optimum, where BatchLLM's Algorithm 1
 * (arXiv:2412.03594 §4.2, here in baselines/batchllm.ts) is a greedy choice. With the nearest opened node above v at depth d, what v and
 * everything below can save at most is
 *
 *   best(v, d) = max(keep, open)
 *   keep = ends(v) d + sum over children c of best(c, d)
 *   open = ends(v) depth(v) + sum over children c of best(c, depth(v)) - depth(v)
 *
 * since opening v costs one computation of its tokens. d is the depth of a node above v, so that there are as many values as v has
 * nodes above it: altogether no more than the prompts have tokens. What keeping saves grows with d, and what opening saves does not
 * depend on it: so v is opened below the first so many of the nodes above it, and one number tells the choice.
 */
export function oneLevel(tree: PrefixTree): OneLevel {
  const { nodes, parent, depth, ends, prompts } = tree;
  const level = new Int32Array(nodes);
  for (let node = 1; node < nodes; node++) level[node] = level[parent[node]!]! + 1;

  /** By node: of the nodes above it, from the root on, the first so many below which it is opened. */
  const opensBelow = new Int32Array(nodes);
  /** By level, of the nodes above the one that is looked at: the sum of what the children so far save at most, by level of the
   *  nearest opened node; without those that can only be kept. Below a node the part with most prompts comes first here, so that
   *  only few sums are there at a time. */
  const sums: (Float64Array | undefined)[] = [];
  /** By node: prompts that end here, or at a child that cannot be opened. */
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
  /** By node: the level of the nearest opened node, itself included. */
  const nearest = new Int32Array(nodes);
  for (let node = 1; node < nodes; node++) {
    const above = nearest[parent[node]!]!;
    isOpened[node] = above < opensBelow[node]! ? 1 : 0;
    nearest[node] = isOpened[node] === 1 ? level[node]! : above;
  }
  return isOpened;
}

import { assert } from "../core.ts";
import { type NodeIndex, type PrefixTree, ROOT } from "./prefix-tree.ts";

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
  const { nodes, order, parent, depth, ends, prompts } = tree;
  const level = new Int32Array(nodes);
  for (let i = 1; i < nodes; i++) level[order[i]!] = level[parent[order[i]!]!]! + 1;

  /** By node: of the nodes above it, from the root on, the first so many below which it is opened. */
  const opensBelow = new Int32Array(nodes);
  /** By node: the sum of its children's best, by level of the nearest opened node; without those that can only be kept. */
  const sums = new Map<NodeIndex, Float64Array>();
  /** By node: prompts that end here, or at a child that cannot be opened. */
  const kept = ends.slice();
  const path = new Float64Array(level.reduce((most, one) => Math.max(most, one), 0) + 1);
  for (const node of fromBelow(tree)) {
    const sum = sums.get(node);
    sums.delete(node);
    if (node === ROOT) return { isOpened: opened(tree, level, opensBelow), savedTokens: sum?.[0] ?? 0 };
    const above = parent[node]!;
    if (prompts[node]! < 2) {
      kept[above]! += prompts[node]!;
      continue;
    }
    const levels = level[node]!;
    for (let at = above, l = levels - 1; l >= 0; l--, at = parent[at]!) path[l] = depth[at]!;
    const open = kept[node]! * depth[node]! + (sum?.[levels] ?? 0) - depth[node]!;
    let toParent = sums.get(above);
    if (toParent === undefined) {
      toParent = new Float64Array(levels);
      sums.set(above, toParent);
    }
    for (let l = 0; l < levels; l++) {
      const keep = kept[node]! * path[l]! + (sum?.[l] ?? 0);
      if (open > keep) opensBelow[node] = l + 1;
      toParent[l]! += Math.max(open, keep);
    }
  }
  assert(false, "the root comes last");
}

/** Every node after all those below it. Of a node's children the one with most prompts comes first: so of the sums that wait for
 *  others there are only as many as large parts meet larger ones. */
function* fromBelow(tree: PrefixTree): Generator<NodeIndex> {
  const stack: NodeIndex[] = [ROOT];
  const order: NodeIndex[] = [];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    order.push(node);
    const children = tree.children(node);
    // What comes last here comes first from below.
    const byPrompts = (a: NodeIndex, b: NodeIndex): number => tree.prompts[b]! - tree.prompts[a]!;
    for (const child of children.length > 1 ? children.slice().sort(byPrompts) : children) stack.push(child);
  }
  for (let i = order.length - 1; i >= 0; i--) yield order[i]!;
}

function opened(tree: PrefixTree, level: Int32Array, opensBelow: Int32Array): Uint8Array {
  const isOpened = new Uint8Array(tree.nodes);
  /** By node: the level of the nearest opened node, itself included. */
  const nearest = new Int32Array(tree.nodes);
  for (const node of tree.order) {
    if (node === ROOT) continue;
    const above = nearest[tree.parent[node]!]!;
    isOpened[node] = above < opensBelow[node]! ? 1 : 0;
    nearest[node] = isOpened[node] === 1 ? level[node]! : above;
  }
  return isOpened;
}

import { assert } from "../core.ts";
import type { OneLevel } from "./one-level.ts";
import { type NodeIndex, type PrefixTree, ROOT } from "./prefix-tree.ts";

/** Prompts that share their first `prefixTokens` tokens, which are computed once for all of them. */
export interface PrefixGroup {
  readonly prefixTokens: number;
  /** Indices of prompts, ascending, at least one. A prompt that shares nothing is alone, with a prefix of 0 tokens. */
  readonly members: readonly number[];
}

/** Each prompt in the group of the nearest opened node; groups in order of their first member. */
export function groupsOf(tree: PrefixTree, { isOpened }: OneLevel): PrefixGroup[] {
  const groupNode = new Int32Array(tree.nodes);
  for (const node of tree.order) {
    if (node !== ROOT) groupNode[node] = isOpened[node] === 1 ? node : groupNode[tree.parent[node]!]!;
  }
  const byNode = new Map<NodeIndex, number[]>();
  const groups: PrefixGroup[] = [];
  tree.endOf.forEach((end, prompt) => {
    const node = groupNode[end]!;
    const members = byNode.get(node);
    if (members !== undefined && node !== ROOT) members.push(prompt);
    else {
      const first = [prompt];
      byNode.set(node, first);
      groups.push({ prefixTokens: tree.depth[node]!, members: first });
    }
  });
  return groups;
}

/** Prompts in the order in which a job runs, and how much of each is new. */
export interface JobOrder {
  /** Indices of prompts. */
  readonly prompts: Int32Array;
  /** By place in this order: tokens that the prompt has in common with the one before. */
  readonly sharedTokens: Int32Array;
}

/**
 * A walk of the prefix tree: prompts that share a prefix come one after the other, and so do the groups that share a shorter one, so
 * that a cache that knows every level finds the upper levels, too. Of what a node has below it a group's own members come first,
 * then the groups within.
 *
 * Parts of the tree come by their ratio of answer tokens to prompt tokens, the highest first (BatchLLM, arXiv:2412.03594 §4.3.2):
 * long answers begin early, and later prompts fill the steps that they leave room in. A prefix counts once. Unlike the paper's, the
 * ratio counts answers: `answerTokens` tells how many tokens one is likely to have, by prompt, > 0. Ties are in order of the prompts.
 */
export function orderOf(
  tree: PrefixTree,
  { isOpened }: OneLevel,
  answerTokens: (prompt: number) => number,
): JobOrder {
  const { nodes, order, parent, endOf } = tree;
  const answers = new Float64Array(nodes);
  const tokens = new Float64Array(nodes);
  const first = new Int32Array(nodes).fill(endOf.length);
  const endsHere: number[][] = Array.from({ length: nodes }, () => []);
  endOf.forEach((node, prompt) => {
    answers[node]! += answerTokens(prompt);
    first[node] = Math.min(first[node]!, prompt);
    endsHere[node]!.push(prompt);
  });
  for (let i = nodes - 1; i > 0; i--) {
    const node = order[i]!;
    const above = parent[node]!;
    tokens[node]! += tree.edgeTokens(node);
    tokens[above]! += tokens[node]!;
    answers[above]! += answers[node]!;
    first[above] = Math.min(first[above]!, first[node]!);
  }
  const isInGroup = isOpened.slice();
  for (const node of order) isInGroup[node]! |= isInGroup[parent[node]!]!;
  // What comes first is the last on the stack.
  const fromLast = (a: NodeIndex, b: NodeIndex): number =>
    (isInGroup[parent[a]!] === 1 ? isOpened[b]! - isOpened[a]! : 0) ||
    answers[a]! * tokens[b]! - answers[b]! * tokens[a]! ||
    first[b]! - first[a]!;

  const prompts = new Int32Array(endOf.length);
  const sharedTokens = new Int32Array(endOf.length);
  let count = 0;
  let shared = 0;
  const stack: NodeIndex[] = [ROOT];
  for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
    shared = Math.min(shared, tree.depth[parent[node]!]!);
    for (const prompt of endsHere[node]!) {
      prompts[count] = prompt;
      sharedTokens[count] = shared;
      shared = tree.depth[node]!;
      count += 1;
    }
    const below = tree.children(node);
    for (const child of below.length > 1 ? below.slice().sort(fromLast) : below) stack.push(child);
  }
  assert(count === prompts.length, "every prompt has one place");
  return { prompts, sharedTokens };
}

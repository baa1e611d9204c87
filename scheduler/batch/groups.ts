import { assert } from "../../base/assert.ts";
import type { OneLevel } from "./one-level.ts";
import { type NodeIndex, type PrefixTree, ROOT } from "./prefix-tree.ts";

/** Group of prompts whose first `prefixTokens` tokens are computed once for all of them. */
export interface PrefixGroup {
  readonly prefixTokens: number;
  /**
   * Indices of prompts, ascending, at least one. A prompt that shares no prefix is alone, with a prefix of 0
   * tokens.
   */
  readonly members: readonly number[];
}

/** Puts each prompt in the group of its nearest opened node; groups are in order of their first member. */
export function groupsOf(tree: PrefixTree, { isOpened }: OneLevel): PrefixGroup[] {
  /** Members of each node's group, by node; null: its prompts are alone. */
  const groupOf: (number[] | null)[] = [null];
  const groups: PrefixGroup[] = [];
  for (let node = ROOT; node < tree.nodes; node++) {
    let members = groupOf[tree.parent[node]!]!;
    if (isOpened[node] === 1) {
      members = [];
      groups.push({ prefixTokens: tree.depth[node]!, members });
    }
    groupOf[node] = members;
    for (const prompt of tree.promptsAt(node)) {
      if (members === null) groups.push({ prefixTokens: 0, members: [prompt] });
      else members.push(prompt);
    }
  }
  for (const { members } of groups) (members as number[]).sort((a, b) => a - b);
  return groups.sort((a, b) => a.members[0]! - b.members[0]!);
}

/** Order in which a job runs its prompts, with the new tokens of each. */
export interface BatchOrder {
  /** Indices of prompts, in this order. */
  readonly prompts: Int32Array;
  /** Tokens that each prompt shares with the one before, by position in this order. */
  readonly sharedTokens: Int32Array;
}

/**
 * Orders prompts by a walk of the prefix tree. Prompts that share a prefix are adjacent, and so are groups
 * that share a shorter one; a multi-level cache then hits the upper levels, too. A group's own members come
 * before the groups within it.
 *
 * Subtrees come by descending ratio of answer tokens to prompt tokens (BatchLLM, arXiv:2412.03594 §4.3.2).
 * Long answers then begin early, and later prompts fill the room in their steps. A prefix counts once. Unlike
 * the paper's, the ratio counts answers: `answerTokens` is the expected answer length by prompt, > 0. Ties
 * keep the order of the prompts.
 */
export function orderOf(
  tree: PrefixTree,
  { isOpened }: OneLevel,
  answerTokens: (prompt: number) => number,
): BatchOrder {
  const { nodes, parent, depth, after, begin, ends, sorted } = tree;
  const count = sorted.length;
  const answers = new Float64Array(nodes);
  const tokens = new Float64Array(nodes);
  /** Answer tokens per prompt token, by node. */
  const ratio = new Float64Array(nodes);
  const first = new Int32Array(nodes).fill(count);
  for (let node = nodes - 1; node > ROOT; node--) {
    const above = parent[node]!;
    for (let at = begin[node]!; at < begin[node]! + ends[node]!; at++) {
      answers[node]! += answerTokens(sorted[at]!);
      first[node] = Math.min(first[node]!, sorted[at]!);
    }
    tokens[node]! += depth[node]! - depth[above]!;
    ratio[node] = answers[node]! / tokens[node]!;
    tokens[above]! += tokens[node]!;
    answers[above]! += answers[node]!;
    first[above] = Math.min(first[above]!, first[node]!);
  }
  /** True for opened nodes and all nodes below them, by node. */
  const isInGroup = isOpened.slice();
  for (let node = 1; node < nodes; node++) isInGroup[node]! |= isInGroup[parent[node]!]!;
  // The stack reverses the order: the last one pushed comes first.
  const fromLast = (a: NodeIndex, b: NodeIndex): number =>
    (isInGroup[parent[a]!] === 1 ? isOpened[b]! - isOpened[a]! : 0) ||
    ratio[a]! - ratio[b]! ||
    first[b]! - first[a]!;

  const prompts = new Int32Array(count);
  const sharedTokens = new Int32Array(count);
  let place = 0;
  let shared = 0;
  const stack = new Int32Array(nodes);
  for (let top = 1; top > 0; ) {
    top -= 1;
    const node = stack[top]!;
    shared = Math.min(shared, depth[parent[node]!]!);
    for (let at = begin[node]!; at < begin[node]! + ends[node]!; at++) {
      prompts[place] = sorted[at]!;
      sharedTokens[place] = shared;
      shared = depth[node]!;
      place += 1;
    }
    const bottom = top;
    for (let child = node + 1; child < after[node]!; child = after[child]!) {
      stack[top] = child;
      top += 1;
    }
    if (top > bottom + 1) stack.subarray(bottom, top).sort(fromLast);
  }
  assert(place === count, "every prompt has one place");
  return { prompts, sharedTokens };
}

import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";

/** Index of a node in the columns of a tree. */
export type NodeIndex = number;

/** Root node, where every prompt begins. */
export const ROOT: NodeIndex = 0;

/** Prompts of a job, concatenated: prompt i is tokens [from[i], from[i + 1]). */
export interface PromptTable {
  readonly tokens: Int32Array;
  /** Offsets, one more than prompts. */
  readonly from: ArrayLike<number>;
}

/** Makes a table of a few prompts. */
export function promptTable(prompts: readonly ArrayLike<TokenId>[]): PromptTable {
  const from = [0];
  for (const { length } of prompts) from.push(from.at(-1)! + length);
  const tokens = new Int32Array(from.at(-1)!);
  prompts.forEach((prompt, index) => {
    tokens.set(prompt, from[index]);
  });
  return { tokens, from };
}

/** Prompts in one tree at most: a prompt and its sort token are packed into one number. */
export const TREE_PROMPTS_MAX = 2 ** 20;

/**
 * Compact prefix tree of all prompts of a job, built before any of them runs (BatchLLM, arXiv:2412.03594
 * §4.2). A node stands for the tokens [0, depth) that some prompts share. A prompt that is a prefix of
 * another ends at an inner node; equal prompts end at the same node. Nodes are columns of numbers, since a
 * job has tens of thousands of prompts.
 *
 * Nodes are numbered in preorder, so that a node comes before its subtree, which is contiguous. The heaviest
 * child comes last.
 *
 * Construction is a radix sort from the first token on. The prompts of a node are compared with the first of
 * them up to the first difference: there the node ends. They are then sorted by the next token; those with
 * the same one form a child. Only shared tokens are read, each once per prompt that has it.
 */
export class PrefixTree {
  /** Number of nodes, the root included. */
  readonly nodes: number;
  /** Parent by node; the root's is itself. */
  readonly parent: Int32Array;
  /** Tokens from the root to the node's end, by node. */
  readonly depth: Int32Array;
  /** Prompts that end at or below the node, by node. */
  readonly prompts: Int32Array;
  /** Prompts that end exactly at the node, by node. */
  readonly ends: Int32Array;
  /** First node after the node's subtree, by node. */
  readonly after: Int32Array;
  /**
   * Prompts in order of their tokens. Those of a node are contiguous; the ones that end there come first,
   * ascending.
   */
  readonly sorted: Int32Array;
  /** Index in `sorted` of the node's first prompt, by node. */
  readonly begin: Int32Array;

  constructor(table: PromptTable) {
    const { nodes, parent, depth, begin, prompts, ends, sorted } = split(table);
    this.nodes = nodes;
    this.parent = parent;
    this.depth = depth;
    this.prompts = prompts;
    this.ends = ends;
    this.begin = begin;
    this.sorted = sorted;
    this.after = new Int32Array(nodes);
    for (let node = nodes - 1; node >= 0; node--) {
      this.after[node] = Math.max(this.after[node]!, node + 1);
      this.after[parent[node]!] = Math.max(this.after[parent[node]!]!, this.after[node]!);
    }
  }

  /** Returns the children of a node. */
  children(node: NodeIndex): NodeIndex[] {
    const children: NodeIndex[] = [];
    for (let child = node + 1; child < this.after[node]!; child = this.after[child]!) children.push(child);
    return children;
  }

  /** Returns the prompts that end exactly at a node, ascending. */
  promptsAt(node: NodeIndex): Int32Array {
    return this.sorted.subarray(this.begin[node]!, this.begin[node]! + this.ends[node]!);
  }

  /** Returns the tokens of the edge from the parent to the node. */
  edgeTokens(node: NodeIndex): number {
    return this.depth[node]! - this.depth[this.parent[node]!]!;
  }

  /** Tokens saved when every token of the tree is computed once; no schedule saves more. */
  get savedAtMost(): number {
    let saved = 0;
    for (let node = 1; node < this.nodes; node++) {
      saved += (this.prompts[node]! - 1) * this.edgeTokens(node);
    }
    return saved;
  }
}

interface Split {
  readonly nodes: number;
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  readonly begin: Int32Array;
  readonly prompts: Int32Array;
  readonly ends: Int32Array;
  readonly sorted: Int32Array;
}

/** Splits all prompts into nodes, top down. */
function split({ tokens, from }: PromptTable): Split {
  const count = from.length - 1;
  assert(count <= TREE_PROMPTS_MAX, "a tree has prompts, as many as it may");
  const room = 2 * count + 1;
  const parent = new Int32Array(room);
  const depth = new Int32Array(room);
  const begin = new Int32Array(room);
  const prompts = new Int32Array(room);
  const ends = new Int32Array(room);
  const sorted = Int32Array.from({ length: count }, (_, prompt) => prompt);
  const keys = new Float64Array(count);
  /** Stack of nodes to split: their parents, and their ranges in `sorted`. */
  const stack = new Int32Array(3 * (count + 1));
  let top = 0;
  const push = (above: NodeIndex, start: number, end: number): void => {
    stack[top] = above;
    stack[top + 1] = start;
    stack[top + 2] = end;
    top += 3;
  };

  let node = ROOT;
  for (push(ROOT, 0, count); top > 0; node++) {
    top -= 3;
    const above = stack[top]!;
    const start = stack[top + 1]!;
    const end = stack[top + 2]!;
    parent[node] = above;
    begin[node] = start;
    prompts[node] = end - start;
    if (node !== ROOT) depth[node] = agreeUntil(tokens, from, sorted, start, end, depth[above]! + 1);
    if (end - start === 1 && node !== ROOT) {
      ends[node] = 1;
      continue;
    }
    sortByNext(keys, { tokens, from }, sorted, start, end, depth[node]!);
    let at = start;
    for (; at < end && keys[at]! < TREE_PROMPTS_MAX; at++) sorted[at] = keys[at]!;
    ends[node] = at - start;
    const pushed = top;
    let heaviest = top;
    let most = 0;
    while (at < end) {
      const first = at;
      const key = Math.floor(keys[at]! / TREE_PROMPTS_MAX) * TREE_PROMPTS_MAX;
      for (; at < end && keys[at]! < key + TREE_PROMPTS_MAX; at++) sorted[at] = keys[at]! - key;
      if (at - first > most) {
        most = at - first;
        heaviest = top;
      }
      push(node, first, at);
    }
    // Puts the heaviest child below the others on the stack.
    for (let i = 0; i < 3 && most > 0; i++) {
      const other = stack[pushed + i]!;
      stack[pushed + i] = stack[heaviest + i]!;
      stack[heaviest + i] = other;
    }
  }
  const cut = (column: Int32Array): Int32Array => column.slice(0, node);
  return {
    nodes: node,
    parent: cut(parent),
    depth: cut(depth),
    begin: cut(begin),
    prompts: cut(prompts),
    ends: cut(ends),
    sorted,
  };
}

/**
 * Sorts prompts that share `depth` tokens: those that end there first, the others by their next token, ties
 * by number. The sort key is that token times the tree's capacity, plus the prompt's number.
 */
function sortByNext(
  keys: Float64Array,
  { tokens, from }: PromptTable,
  sorted: Int32Array,
  start: number,
  end: number,
  depth: number,
): void {
  for (let at = start; at < end; at++) {
    const prompt = sorted[at]!;
    const next = from[prompt]! + depth;
    const key = next === from[prompt + 1]! ? 0 : (tokens[next]! >>> 0) + 1;
    keys[at] = key * TREE_PROMPTS_MAX + prompt;
  }
  keys.subarray(start, end).sort();
}

/** Returns the length of the common prefix of prompts whose first `agreed` tokens are equal. */
function agreeUntil(
  tokens: Int32Array,
  from: ArrayLike<number>,
  sorted: Int32Array,
  start: number,
  end: number,
  agreed: number,
): number {
  const a = from[sorted[start]!]!;
  let until = from[sorted[start]! + 1]! - a;
  for (let at = start + 1; at < end && until > agreed; at++) {
    const b = from[sorted[at]!]!;
    until = firstDifference(tokens, a, b, agreed, Math.min(until, from[sorted[at]! + 1]! - b));
  }
  return until;
}

/**
 * Returns the first difference of the tokens behind `a` and `b` in [from, end]. Compares eight at a time,
 * since building a tree spends its time here.
 */
function firstDifference(tokens: Int32Array, a: number, b: number, from: number, end: number): number {
  let at = from;
  for (; at + 8 <= end; at += 8) {
    const i = a + at;
    const j = b + at;
    const differences =
      (tokens[i]! ^ tokens[j]!) |
      (tokens[i + 1]! ^ tokens[j + 1]!) |
      (tokens[i + 2]! ^ tokens[j + 2]!) |
      (tokens[i + 3]! ^ tokens[j + 3]!) |
      (tokens[i + 4]! ^ tokens[j + 4]!) |
      (tokens[i + 5]! ^ tokens[j + 5]!) |
      (tokens[i + 6]! ^ tokens[j + 6]!) |
      (tokens[i + 7]! ^ tokens[j + 7]!);
    if (differences !== 0) break;
  }
  while (at < end && tokens[a + at] === tokens[b + at]) at += 1;
  return at;
}

import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";

/** A node's place in the columns of a tree. */
export type NodeIndex = number;

/** The node that every prompt begins at. */
export const ROOT: NodeIndex = 0;

/** The prompts of a job, one behind the other: prompt i is tokens [from[i], from[i + 1]). */
export interface PromptTable {
  readonly tokens: Int32Array;
  /** One entry more than prompts. */
  readonly from: ArrayLike<number>;
}

/** A table of a few prompts. */
export function promptTable(prompts: readonly ArrayLike<TokenId>[]): PromptTable {
  const from = [0];
  for (const { length } of prompts) from.push(from.at(-1)! + length);
  const tokens = new Int32Array(from.at(-1)!);
  prompts.forEach((prompt, index) => {
    tokens.set(prompt, from[index]);
  });
  return { tokens, from };
}

/** Prompts that one tree holds, at most: a prompt and the token that it is sorted by are one number. */
export const TREE_PROMPTS_MAX = 2 ** 20;

/**
 * The compact prefix tree of all prompts of a job, built before any of them runs (BatchLLM, arXiv:2412.03594 §4.2). A node
 * stands for the tokens [0, depth) that some prompts have in common; a prompt that is the prefix of another, or equal to it, ends
 * at an inner node, or at the same one. Nodes are columns of numbers: a job has tens of thousands of prompts.
 *
 * Nodes are numbered as a walk from the root meets them: a node comes before those below it, and these are side by side. Of the
 * nodes below one the part with most prompts comes last.
 *
 * It is built as a radix sort goes, from the first token on. The prompts of a node are compared with the first of them, up to
 * where one differs: there the node ends. They are then sorted by the next token, and those with the same one are a node below. So no
 * token is read but those that are shared, each once for each prompt that has it.
 */
export class PrefixTree {
  /** Nodes there are, the root among them. */
  readonly nodes: number;
  /** By node: the node above; the root's is itself. */
  readonly parent: Int32Array;
  /** By node: tokens from the root to its end. */
  readonly depth: Int32Array;
  /** By node: prompts that end here or below. */
  readonly prompts: Int32Array;
  /** By node: prompts that end exactly here. */
  readonly ends: Int32Array;
  /** By node: the first node that is not below it any more. */
  readonly after: Int32Array;
  /** Prompts in order of their tokens: those of a node are side by side, the ones that end there first, ascending. */
  readonly sorted: Int32Array;
  /** By node: where its prompts begin in `sorted`. */
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

  /** The nodes right below one. */
  children(node: NodeIndex): NodeIndex[] {
    const children: NodeIndex[] = [];
    for (let child = node + 1; child < this.after[node]!; child = this.after[child]!) children.push(child);
    return children;
  }

  /** The prompts that end exactly at a node, ascending. */
  promptsAt(node: NodeIndex): Int32Array {
    return this.sorted.subarray(this.begin[node]!, this.begin[node]! + this.ends[node]!);
  }

  /** Tokens between its parent and it. */
  edgeTokens(node: NodeIndex): number {
    return this.depth[node]! - this.depth[this.parent[node]!]!;
  }

  /** Tokens that need not be computed if every token of the tree is computed once: no schedule saves more. */
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

/** Splits all prompts into nodes, and each node's into those below. */
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
  /** Nodes to come: the node above, and where their prompts begin and end in `sorted`. */
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
    // The heaviest below the others on the stack.
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

/** Keys of prompts that have `depth` tokens in common, sorted: those that end there first, the others by their next token, and those
 *  with the same one by their number. A key is that token's, times what a tree has room for, and the prompt. */
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

/** How far prompts agree that have their first `agreed` tokens in common. */
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

/** How far the tokens behind `a` and `b` are equal, in [from, end]; eight at a time, as this is what building a tree takes. */
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

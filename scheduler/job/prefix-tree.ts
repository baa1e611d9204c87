import { assert, type TokenId } from "../core.ts";

/** A node's or a prompt's place in columns. */
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

/**
 * The compact prefix tree of all prompts of a job, built before any of them runs (BatchLLM, arXiv:2412.03594 §4.2). A node
 * stands for the tokens [0, depth) that some prompts have in common; a prompt that is the prefix of another, or equal to it, ends
 * at an inner node, or at the same one. Nodes are columns of numbers: a job has tens of thousands of prompts.
 *
 * Each prompt is compared with the tree only as far as they agree, so building costs about the tokens that are shared.
 */
export class PrefixTree {
  /** Nodes there are, the root among them. */
  readonly nodes: number;
  /** By node: the node above; the root's is itself. */
  readonly parent: Int32Array;
  /** By node: tokens from the root to its end. */
  readonly depth: Int32Array;
  /** By node: prompts that end exactly here. */
  readonly ends: Int32Array;
  /** By node: prompts that end here or below. */
  readonly prompts: Int32Array;
  /** By prompt: the node where it ends. */
  readonly endOf: Int32Array;
  /** Every node after its parent. */
  readonly order: Int32Array;
  readonly #children: Int32Array;
  /** By node: where its children begin; one entry more than nodes. */
  readonly #childrenFrom: Int32Array;

  constructor(table: PromptTable) {
    const grown = grow(table);
    const { nodes } = grown;
    this.nodes = nodes;
    this.parent = grown.parent;
    this.depth = grown.depth;
    this.endOf = grown.endOf;
    this.ends = new Int32Array(nodes);
    for (const node of this.endOf) this.ends[node]! += 1;
    [this.#childrenFrom, this.#children] = childrenOf(this.parent, nodes);
    this.order = this.#walk();
    this.prompts = this.ends.slice();
    for (let i = nodes - 1; i > 0; i--) {
      const node = this.order[i]!;
      this.prompts[this.parent[node]!]! += this.prompts[node]!;
    }
  }

  children(node: NodeIndex): Int32Array {
    return this.#children.subarray(this.#childrenFrom[node], this.#childrenFrom[node + 1]);
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

  #walk(): Int32Array {
    const order = new Int32Array(this.nodes);
    const stack = [ROOT];
    let count = 0;
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      order[count] = node;
      count += 1;
      for (const child of this.children(node)) stack.push(child);
    }
    assert(count === this.nodes, "every node is below the root");
    return order;
  }
}

interface Grown {
  readonly nodes: number;
  readonly parent: Int32Array;
  readonly depth: Int32Array;
  readonly endOf: Int32Array;
}

/** Adds one prompt after the other: each brings a node at most, and may split one. */
function grow({ tokens, from }: PromptTable): Grown {
  const prompts = from.length - 1;
  const room = 2 * prompts + 1;
  const parent = new Int32Array(room);
  const depth = new Int32Array(room);
  /** Where the tokens of a prompt begin that goes through a node. */
  const origin = new Int32Array(room);
  const endOf = new Int32Array(prompts);
  const childBy = new Map<number, NodeIndex>();
  let nodes = 1;
  const add = (above: NodeIndex, end: number, start: number): NodeIndex => {
    parent[nodes] = above;
    depth[nodes] = end;
    origin[nodes] = start;
    nodes += 1;
    return nodes - 1;
  };
  for (let prompt = 0; prompt < prompts; prompt++) {
    const start = from[prompt]!;
    const length = from[prompt + 1]! - start;
    let node = ROOT;
    while (depth[node]! < length) {
      const key = childKey(node, tokens[start + depth[node]!]!);
      const child = childBy.get(key);
      if (child === undefined) {
        node = add(node, length, start);
        childBy.set(key, node);
        break;
      }
      const other = origin[child]!;
      const end = Math.min(depth[child]!, length);
      const agreed = agreeUntil(tokens, start, other, depth[node]! + 1, end);
      if (agreed < depth[child]!) {
        const between = add(node, agreed, start);
        parent[child] = between;
        childBy.set(key, between);
        childBy.set(childKey(between, tokens[other + agreed]!), child);
        node = between;
      } else node = child;
    }
    endOf[prompt] = node;
  }
  return { nodes, parent: parent.slice(0, nodes), depth: depth.slice(0, nodes), endOf };
}

/** One number for a node and the token after it. */
function childKey(node: NodeIndex, token: TokenId): number {
  return node * 2 ** 32 + token;
}

/** How far the prompts that begin at `a` and `b` agree, in [from, end]; four at a time, as this is what building a tree takes. */
function agreeUntil(tokens: Int32Array, a: number, b: number, from: number, end: number): number {
  let at = from;
  while (at + 4 <= end) {
    const differences =
      (tokens[a + at]! ^ tokens[b + at]!) |
      (tokens[a + at + 1]! ^ tokens[b + at + 1]!) |
      (tokens[a + at + 2]! ^ tokens[b + at + 2]!) |
      (tokens[a + at + 3]! ^ tokens[b + at + 3]!);
    if (differences !== 0) break;
    at += 4;
  }
  while (at < end && tokens[a + at] === tokens[b + at]) at += 1;
  return at;
}

/** Children side by side, and where each node's begin. */
function childrenOf(parent: Int32Array, nodes: number): [Int32Array, Int32Array] {
  const from = new Int32Array(nodes + 1);
  for (let node = 1; node < nodes; node++) from[parent[node]! + 1]! += 1;
  for (let node = 0; node < nodes; node++) from[node + 1]! += from[node]!;
  const next = from.slice();
  const children = new Int32Array(Math.max(0, nodes - 1));
  for (let node = 1; node < nodes; node++) {
    children[next[parent[node]!]!] = node;
    next[parent[node]!]! += 1;
  }
  return [from, children];
}

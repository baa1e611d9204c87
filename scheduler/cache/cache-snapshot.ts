import type { TokenId } from "../../base/token.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { Cache } from "./cache.ts";
import type { Eviction } from "./eviction-log.ts";
import type { RadixNode } from "./radix-tree.ts";
import { computeMs } from "./tier-prices.ts";

/** Nodes that are visited for a snapshot. */
const VISITS_MAX = 20_000;

/** Contents of a snapshot. */
export interface SnapshotRequest {
  /** Nodes at most: the heaviest. */
  readonly nodesMax: number;
  /** First tokens of each node; 0: none. */
  readonly textTokens: number;
  /** Beginning of the cache salts whose nodes alone are listed; null: all nodes. */
  readonly owner: string | null;
}

/** Prefix cache as people look at it: the nodes with the most pages at or below them. */
export interface CacheSnapshot {
  /** Nodes and pages of the cache, also those that are not listed; less if there are too many to visit. */
  readonly nodesTotal: number;
  readonly pagesTotal: number;
  /** Parents first. */
  readonly nodes: readonly SnapshotNode[];
  /** First tokens of each listed node; null: not asked for. */
  readonly beginnings: readonly (readonly TokenId[])[] | null;
  /** The last evictions, newest first. */
  readonly evictions: readonly PricedEviction[];
}

/** Eviction, and the milliseconds that computing its tokens again takes. */
export interface PricedEviction extends Eviction {
  readonly recomputeMs: number;
}

/**
 * Node of a snapshot: an id for its life, the index of its parent in the list or -1, and its tokens [start, end).
 * Then come its pages, pages at or below it, sequences that began from it, locks, waiters, and age. Age
 * is the position in the eviction order: 0 is evicted next, 1 last, -1 not at all while it is locked. The snapshot of an
 * owner has -1 throughout, since one order holds the nodes of all keys.
 */
export type SnapshotNode = readonly [
  id: number,
  parent: number,
  start: number,
  end: number,
  pages: number,
  pagesBelow: number,
  reads: number,
  locks: number,
  waiters: number,
  age: number,
];

/**
 * Takes a snapshot of at most `nodesMax` nodes, with up to `textTokens` tokens of each. Changes nothing. O(nodes). The
 * snapshot of an owner depends on its own nodes alone, and has no evictions.
 */
export function snapshotOf(
  cache: Pick<Cache, "roots" | "evictionOrder" | "evictions">,
  { nodesMax, textTokens, owner }: SnapshotRequest,
  costs: CostModel,
): CacheSnapshot {
  const nodes: RadixNode[] = [];
  for (const node of nodesBelow(owner === null ? cache.roots : topsOf(cache.roots, owner))) {
    nodes.push(node);
    if (nodes.length === VISITS_MAX) break;
  }
  const below = new Map<RadixNode, number>();
  for (const node of nodes.toReversed()) {
    const pages = (below.get(node) ?? 0) + node.pages.length;
    below.set(node, pages);
    if (node.parent !== null) below.set(node.parent, (below.get(node.parent) ?? 0) + pages);
  }
  const ages = owner === null ? agesOf(cache) : new Map<RadixNode, number>();
  // A parent has at least as many pages below it as its children, and stands before them.
  const heaviest = nodes.toSorted((a, b) => below.get(b)! - below.get(a)!).slice(0, nodesMax);
  const places = new Map(heaviest.map((node, place) => [node, place]));
  const ids = new Map<RadixNode, number>();
  return {
    nodesTotal: nodes.length,
    pagesTotal: nodes.reduce((sum, { pages }) => sum + pages.length, 0),
    nodes: heaviest.map((node) => {
      const parent = places.get(node.parent!) ?? -1;
      const id = idOf(node, ids.get(node.parent!) ?? hashBefore(node));
      ids.set(node, id);
      const { start, pages, reads, locks, waiters } = node;
      const age = ages.get(node) ?? -1;
      return [id, parent, start, node.end, pages.length, below.get(node)!, reads, locks, waiters, age];
    }),
    beginnings:
      textTokens === 0 ? null : heaviest.map(({ tokens }) => Array.from(tokens.subarray(0, textTokens))),
    evictions: (owner === null ? cache.evictions.last : []).map((one) => ({
      ...one,
      recomputeMs: Math.round(100 * computeMs(costs, one.end - one.start, one.start)) / 100,
    })),
  };
}

/** Nodes at or below others, parents first. */
function* nodesBelow(tops: Iterable<RadixNode>): Generator<RadixNode> {
  for (const top of tops) {
    const stack = [top];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      yield node;
      for (const child of node.children.values()) stack.push(child);
    }
  }
}

/**
 * Highest nodes that belong to an owner's cache salts: roots, and nodes after a public text. The public text itself
 * belongs to no key.
 */
function* topsOf(roots: Iterable<RadixNode>, owner: string): Generator<RadixNode> {
  for (const root of roots) {
    const key = `${root.edge}`;
    if (key.includes(":")) {
      if (saltOf(key).startsWith(owner)) yield root;
      continue;
    }
    const stack = [root];
    for (let node = stack.pop(); node !== undefined; node = stack.pop()) {
      for (const child of node.children.values()) {
        if (typeof child.edge !== "string") stack.push(child);
        else if (saltOf(saltOf(child.edge)).startsWith(owner)) yield child;
      }
    }
  }
}

/** Text after the first colon: the salt in a cache key, or the cache key in an edge after a public text. */
function saltOf(key: string): string {
  return key.slice(key.indexOf(":") + 1);
}

function agesOf({ evictionOrder }: Pick<Cache, "evictionOrder">): Map<RadixNode, number> {
  const order: RadixNode[] = [];
  for (const node of evictionOrder) {
    order.push(node);
    if (order.length === VISITS_MAX) break;
  }
  return new Map(
    order.map((node, at) => [node, Math.round((100 * at) / Math.max(1, order.length - 1)) / 100]),
  );
}

/**
 * Hash of the tokens before a node whose parent is not listed. Independent of the borders between its ancestors,
 * which other keys' prompts move.
 */
function hashBefore({ parent }: RadixNode): number {
  let hash = 0;
  for (let node = parent; node !== null; node = node.parent)
    for (const token of node.tokens.toReversed()) hash = Math.imul(hash ^ token, 0x01000193);
  return hash;
}

/** Hash of the path to a node (FNV-1a), which identifies it across snapshots. */
function idOf({ edge, start }: RadixNode, above: number): number {
  let hash = above ^ 0x811c9dc5;
  for (const part of `${edge} ${start}`) hash = Math.imul(hash ^ part.charCodeAt(0), 0x01000193);
  return hash >>> 0;
}

import type { TokenId } from "../../base/token.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { Cache } from "./cache.ts";
import type { Eviction } from "./eviction-log.ts";
import type { RadixNode } from "./radix-tree.ts";
import { computeMs } from "./tier-prices.ts";

/** Nodes that are visited for a snapshot. */
const VISITS_MAX = 20_000;

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
 * Node of a snapshot: an id that it keeps for its life, the index of its parent in the list or -1, its tokens
 * [start, end), pages, pages at or below it, sequences that began from it, locks, waiters, and its age. Age is the
 * position in the eviction order: 0 is evicted next, 1 last, -1 not at all while it is locked.
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

/** Takes a snapshot of at most `nodesMax` nodes, with up to `textTokens` tokens of each. Changes nothing. O(nodes). */
export function snapshotOf(
  cache: Pick<Cache, "nodes" | "evictionOrder" | "evictions">,
  nodesMax: number,
  costs: CostModel,
  textTokens = 0,
): CacheSnapshot {
  const nodes: RadixNode[] = [];
  for (const { node } of cache.nodes()) {
    nodes.push(node);
    if (nodes.length === VISITS_MAX) break;
  }
  const below = new Map<RadixNode, number>();
  for (const node of nodes.toReversed()) {
    const pages = (below.get(node) ?? 0) + node.pages.length;
    below.set(node, pages);
    if (node.parent !== null) below.set(node.parent, (below.get(node.parent) ?? 0) + pages);
  }
  const ages = agesOf(cache);
  // A parent has at least as many pages below it as its children, and stands before them.
  const heaviest = nodes.toSorted((a, b) => below.get(b)! - below.get(a)!).slice(0, nodesMax);
  const places = new Map(heaviest.map((node, place) => [node, place]));
  const ids = new Map<RadixNode, number>();
  return {
    nodesTotal: nodes.length,
    pagesTotal: nodes.reduce((sum, { pages }) => sum + pages.length, 0),
    nodes: heaviest.map((node) => {
      const parent = node.parent === null ? -1 : places.get(node.parent)!;
      const id = idOf(node, node.parent === null ? 0 : ids.get(node.parent)!);
      ids.set(node, id);
      const { start, pages, reads, locks, waiters } = node;
      const age = ages.get(node) ?? -1;
      return [id, parent, start, node.end, pages.length, below.get(node)!, reads, locks, waiters, age];
    }),
    beginnings:
      textTokens === 0 ? null : heaviest.map(({ tokens }) => Array.from(tokens.subarray(0, textTokens))),
    evictions: cache.evictions.last.map((one) => ({
      ...one,
      recomputeMs: Math.round(100 * computeMs(costs, one.end - one.start, one.start)) / 100,
    })),
  };
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

/** Hash of the path to a node (FNV-1a), which identifies it across snapshots. */
function idOf({ edge, start }: RadixNode, above: number): number {
  let hash = above ^ 0x811c9dc5;
  for (const part of `${edge} ${start}`) hash = Math.imul(hash ^ part.charCodeAt(0), 0x01000193);
  return hash >>> 0;
}

/** Layout of a prefix cache as an icicle. */
import { type HierarchyRectangularNode, hierarchy, partition } from "d3-hierarchy";
import type { CacheNow } from "../../http/state-events.ts";

/** Node of the prefix tree. */
export interface TreeNode {
  /** Stable from one snapshot to the next. */
  readonly id: number;
  readonly start: number;
  readonly end: number;
  readonly pages: number;
  readonly pagesBelow: number;
  readonly reads: number;
  readonly locks: number;
  readonly waiters: number;
  /** Position in eviction order: 0 is evicted next, 1 last; -1 cannot be evicted. */
  readonly age: number;
  readonly children: TreeNode[];
}

export type Box = HierarchyRectangularNode<TreeNode>;

/** The cache's trees below one root, whose id is 0. */
export function treeOf({ nodes, pagesTotal }: CacheNow): TreeNode {
  const root: TreeNode = {
    id: 0,
    start: 0,
    end: 0,
    pages: 0,
    pagesBelow: pagesTotal,
    reads: 0,
    locks: 0,
    waiters: 0,
    age: -1,
    children: [],
  };
  const all: TreeNode[] = [];
  for (const [id, parent, start, end, pages, pagesBelow, reads, locks, waiters, age] of nodes) {
    const node = { id, start, end, pages, pagesBelow, reads, locks, waiters, age, children: [] };
    all.push(node);
    (all[parent] ?? root).children.push(node);
  }
  return root;
}

/**
 * Boxes of the subtree at `zoomed`, or of the whole tree if that node was evicted. Width and each level's
 * height are 1.
 */
export function boxesOf(tree: TreeNode, zoomed: number): readonly Box[] {
  // Pages of nodes that the snapshot omits count as their parent's.
  const own = ({ pagesBelow, children }: TreeNode) =>
    Math.max(0, pagesBelow - children.reduce((sum, child) => sum + child.pagesBelow, 0));
  const whole = hierarchy(tree).sum(own);
  const root = whole.find(({ data }) => data.id === zoomed) ?? whole;
  const shown = root.copy().sort((a, b) => b.value! - a.value! || a.data.id - b.data.id);
  return partition<TreeNode>()
    .size([1, shown.height + 1])(shown)
    .descendants();
}

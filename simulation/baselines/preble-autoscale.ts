import { type PrebleNode, type PrebleTree, subtreeLoadMs } from "./preble-tree.ts";
import { type PrebleWait, WINDOW_MS } from "./preble-window.ts";

/** Requests per half window at least, for their waits to count. */
const WAITS_MIN = 4;

/** Load of a GPU, and its decode time DT. */
export interface PrebleLoad {
  readonly gpu: number;
  readonly loadMs: number;
  readonly decodeMs: number;
}

/**
 * Autoscaling (arXiv:2407.00023 §3.2). Applies to a prefix on the most loaded GPU whose requests wait twice
 * as long in the second half of H as in the first. It assigns the prefix, with subtrees of half the load, to
 * the lightest GPU as well. `loads` is not empty.
 */
export function autoscale(
  tree: PrebleTree,
  waits: Iterable<PrebleWait>,
  loads: readonly PrebleLoad[],
  nowMs: number,
): void {
  const heavy = loads.reduce((most, load) => (load.loadMs > most.loadMs ? load : most));
  const loadMs = (node: PrebleNode): number => subtreeLoadMs(node, heavy.gpu, heavy.decodeMs);
  const candidates = doubled(waits).filter(
    ({ holders, replicableMs }) => holders.has(heavy.gpu) && nowMs >= replicableMs,
  );
  if (candidates.length === 0) return;
  const node = candidates.reduce((most, candidate) => (loadMs(candidate) > loadMs(most) ? candidate : most));
  const others = loads.filter(({ gpu }) => !node.holders.has(gpu));
  if (others.length === 0) return;
  node.replica = others.reduce((least, load) => (load.loadMs < least.loadMs ? load : least)).gpu;
  node.replicableMs = nowMs + WINDOW_MS / 2;
  let leftMs = loadMs(node) / 2;
  const children = [...node.children.values()].filter(({ holders }) => holders.has(heavy.gpu));
  for (const child of children.sort((a, b) => loadMs(b) - loadMs(a))) {
    const childMs = loadMs(child);
    if (childMs > leftMs) continue;
    leftMs -= childMs;
    tree.release(child, heavy.gpu);
  }
}

/** Nodes whose requests wait twice as long as before. */
function doubled(waits: Iterable<PrebleWait>): PrebleNode[] {
  const sums = new Map<PrebleNode, { early: number; earlyMs: number; late: number; lateMs: number }>();
  for (const { end, isLate, waitedMs } of waits) {
    for (let node = end; node.parent !== null; node = node.parent) {
      let sum = sums.get(node);
      if (sum === undefined) {
        sum = { early: 0, earlyMs: 0, late: 0, lateMs: 0 };
        sums.set(node, sum);
      }
      sum[isLate ? "late" : "early"] += 1;
      sum[isLate ? "lateMs" : "earlyMs"] += waitedMs;
    }
  }
  return [...sums]
    .filter(([, { early, late }]) => early >= WAITS_MIN && late >= WAITS_MIN)
    .filter(([, { early, earlyMs, late, lateMs }]) => earlyMs > 0 && lateMs / late >= (2 * earlyMs) / early)
    .map(([node]) => node);
}

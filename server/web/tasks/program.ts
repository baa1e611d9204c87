/** Program as sent in the state stream. */
import type { GraphView, ViewedNode } from "../../../scheduler/program/graph-view.ts";

export interface ProgramFacts {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly calls: Readonly<Record<"waiting" | "running" | "done" | "failed", number>>;
  readonly usage: {
    readonly total_tokens: number;
    readonly prompt_tokens_details: { readonly cached_tokens: number };
  };
  readonly graph: GraphView;
}

/** Node with its position: a column to the right of all nodes on which it depends. */
export interface PlacedNode extends ViewedNode {
  readonly column: number;
  readonly row: number;
}

/** Places the nodes of a graph. Nodes of the critical path come first in their columns. */
export function placed({ nodes }: Pick<GraphView, "nodes">): readonly PlacedNode[] {
  const columns: number[] = [];
  const columnOf = (at: number): number => {
    columns[at] ??= 0; // breaks a cycle between copied nodes and their originals
    const before = nodes[at]!.after.map((other) => columns[other] ?? columnOf(other));
    columns[at] = 1 + Math.max(-1, ...before);
    return columns[at];
  };
  for (const at of nodes.keys()) columnOf(at);
  const filled = new Map<number, number>();
  const rows: number[] = [];
  const order = [...nodes.keys()].sort((a, b) => Number(nodes[b]!.isCritical) - Number(nodes[a]!.isCritical));
  for (const at of order) {
    const column = columns[at]!;
    rows[at] = filled.get(column) ?? 0;
    filled.set(column, rows[at] + 1);
  }
  return nodes.map((node, at) => ({ ...node, column: columns[at]!, row: rows[at]! }));
}

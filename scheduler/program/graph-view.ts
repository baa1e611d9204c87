import type { Node, Variable } from "./graph.ts";
import type { NodeSpec } from "./spec.ts";

/** Graph of a program as people look at it. */
export interface GraphView {
  /** Nodes of the program, also those that are not listed. */
  readonly nodesTotal: number;
  /** Oldest first. */
  readonly nodes: readonly ViewedNode[];
}

/** Node as people look at it. */
export interface ViewedNode {
  readonly name: string;
  readonly kind: NodeSpec["kind"];
  readonly state: Node["state"];
  /** Indices in `nodes` of the nodes that it waits for, or of the one whose body it was copied from. */
  readonly after: readonly number[];
  /** True on the path that decides when the program ends, or that decided it. */
  readonly isCritical: boolean;
}

/** Views at most `nodesMax` nodes, the oldest ones. */
export function viewOf(nodes: ReadonlyMap<string, Node>, nodesMax: number): GraphView {
  const all = [...nodes.values()];
  const listed = all.slice(0, nodesMax);
  const places = new Map(listed.map((node, place) => [node, place]));
  const critical = criticalNodes(all);
  return {
    nodesTotal: all.length,
    nodes: listed.map((node) => ({
      name: node.name,
      kind: node.spec.kind,
      state: node.state,
      after: [...new Set(before(node).map((other) => places.get(other) ?? -1))].filter((place) => place >= 0),
      isCritical: critical.has(node),
    })),
  };
}

/** Nodes that write the variables that this one reads; a copy without any: the node whose body it was copied from. */
function before({ reads, block }: Node): readonly Node[] {
  const writers = reads.map(writerOf).filter((node) => node !== null);
  return writers.length > 0 || block === null ? writers : [block];
}

function writerOf(variable: Variable): Node | null {
  return variable.producer ?? (variable.origin === null ? null : writerOf(variable.origin));
}

/**
 * Nodes on the critical path. It runs forward from the unended node with the longest remaining path, and back from it
 * to the beginning by the last input of each. In an ended program it leads back from the node that ended last.
 */
function criticalNodes(nodes: readonly Node[]): ReadonlySet<Node> {
  const found = new Set<Node>();
  const open = nodes.filter(({ isEnded }) => !isEnded);
  const last =
    largest(open, ({ remainingMs }) => remainingMs) ??
    largest(nodes.toReversed(), ({ times }) => times.endedMs ?? -1);
  for (let at = last; at !== null && !found.has(at); at = at.isEnded ? null : longestReader(at))
    found.add(at);
  for (let at = last; at !== null; ) {
    found.add(at);
    const input: Variable | null = at.lastInput;
    const next = input === null ? at.block : writerOf(input);
    at = next !== null && !found.has(next) ? next : null;
  }
  return found;
}

function longestReader({ outputs }: Node): Node | null {
  const readers = outputs.flatMap(({ readers: all }) => [...all]).filter(({ isEnded }) => !isEnded);
  return largest(readers, ({ remainingMs }) => remainingMs);
}

/** The first of those with the largest value; null if there is none. */
function largest(nodes: readonly Node[], sizeOf: (node: Node) => number): Node | null {
  let best: Node | null = null;
  for (const node of nodes) if (best === null || sizeOf(node) > sizeOf(best)) best = node;
  return best;
}

import type { Node } from "./graph.ts";
import { type Body, bodiesOf, type CallSpec, inputsOf, type NodeSpec, outputsOf } from "./spec.ts";

/** Port: returns the milliseconds that a call is expected to take from its beginning to its end. */
export type ExpectedMs = (call: CallSpec) => number;

/** Assumed length of an unknown list, and assumed bodies of a repeat. */
const ITEMS_GUESS = 8;
const REPEATS_GUESS = 4;

/**
 * Sets the expected time from each given unended node to the end of the longest path. Successors that are not
 * `isWanted` have known times already. O(nodes + edges).
 */
export function measurePaths(
  nodes: Iterable<Node>,
  isWanted: (node: Node) => boolean,
  expectedMs: ExpectedMs,
): void {
  const done = new Set<Node>();
  for (const first of nodes) {
    if (done.has(first) || first.isEnded) continue;
    done.add(first);
    const path = [{ node: first, ways: readersOf(first), at: 0 }];
    while (path.length > 0) {
      const top = path.at(-1)!;
      const next = top.ways[top.at];
      top.at += 1;
      if (next === undefined) {
        measure(top.node, expectedMs);
        path.pop();
      } else if (!done.has(next) && isWanted(next)) {
        done.add(next);
        path.push({ node: next, ways: readersOf(next), at: 0 });
      }
    }
  }
}

/** Milliseconds that a node is expected to take, with everything it copies, one after another. */
export function expectedOf(spec: NodeSpec, expectedMs: ExpectedMs): number {
  if (spec.kind === "call") return expectedMs(spec);
  const longest = Math.max(0, ...bodiesOf(spec).map((body) => bodyMs(body, expectedMs)));
  return longest * roundsOf(spec);
}

function measure(node: Node, expectedMs: ExpectedMs): void {
  node.expectedMs = expectedOf(node.spec, expectedMs);
  let after = 0;
  for (const reader of readersOf(node)) {
    // If the reader is the block whose body this node is in, only the time after the block counts.
    const ms = reader === node.block ? reader.remainingMs - reader.expectedMs : reader.remainingMs;
    if (ms > after) after = ms;
  }
  node.remainingMs = node.expectedMs + after;
}

function readersOf(node: Node): readonly Node[] {
  return node.outputs.flatMap(({ readers }) => [...readers].filter(({ isEnded }) => !isEnded));
}

function roundsOf(spec: Exclude<NodeSpec, CallSpec>): number {
  switch (spec.kind) {
    case "map":
      return Math.ceil(ITEMS_GUESS / spec.concurrencyMax);
    case "reduce":
      return ITEMS_GUESS;
    case "choose":
      return 1;
    case "repeat":
      return Math.min(REPEATS_GUESS, spec.countMax);
  }
}

/** Milliseconds of the longest path to a body's result. */
function bodyMs({ nodes, result }: Body, expectedMs: ExpectedMs): number {
  const writers = new Map(nodes.flatMap((node) => outputsOf(node).map((name) => [name, node] as const)));
  const known = new Map<NodeSpec, number>();
  const until = (name: string): number => {
    const writer = writers.get(name);
    if (writer === undefined) return 0;
    let ms = known.get(writer);
    if (ms === undefined) {
      ms = Math.max(0, ...inputsOf(writer).map(until)) + expectedOf(writer, expectedMs);
      known.set(writer, ms);
    }
    return ms;
  };
  return until(result);
}

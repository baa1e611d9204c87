/** Paths of the radix tree in the form in which the lower tier is asked for them. */
import type { Sharing } from "../core.ts";
import type { RadixNode } from "./radix-tree.ts";

/** Nodes of the path that ends with `node`, without the root. */
export function pathTo(node: RadixNode): readonly RadixNode[] {
  const path: RadixNode[] = [];
  for (let at = node; at.parent !== null; at = at.parent) path.push(at);
  return path.reverse();
}

/** False for a node that was taken out of the tree. */
export function isInTree(node: RadixNode): boolean {
  return node.parent?.children.get(node.edge) === node;
}

/** The cache keys of a path. `key` is "" within public text, where it does not matter. */
export function sharingOfPath(node: RadixNode, pageTokens: number): Sharing {
  let at = node;
  let split: RadixNode | null = null;
  for (; at.parent !== null; at = at.parent) if (typeof at.edge === "string") split = at;
  const root = `${at.edge}`;
  const publicKey = root.split(":", 1)[0]!;
  if (publicKey !== root) return { key: root, publicKey, publicTokens: 0 };
  if (split === null) return { key: "", publicKey, publicTokens: node.end - (node.end % pageTokens) };
  const edge = `${split.edge}`;
  return { key: edge.slice(edge.indexOf(":") + 1), publicKey, publicTokens: split.start };
}

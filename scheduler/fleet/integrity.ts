import { assert } from "../../base/assert.ts";
import type { IndexNode } from "./index-node.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/**
 * Checks the index: each engine's pages begin at the root and are in its eviction order, children before parents.
 * The index keeps no page that no engine has. O(engines × nodes).
 */
export function checkIndex(index: PrefixIndex, engines: number): void {
  const counts = new Int32Array(engines);
  const cachedNodes: Set<IndexNode>[] = Array.from({ length: engines }, () => new Set());
  let pages = 0;
  let nodes = 0;
  for (const node of index.nodes()) {
    pages += node.pages;
    nodes += 1;
    checkShape(node);
    let sequences = 0;
    for (let engine = 0; engine < engines; engine++) {
      const cached = node.cached(engine);
      counts[engine]! += cached;
      if (cached > 0) cachedNodes[engine]!.add(node);
      sequences += node.inFlight(engine) + node.readers(engine);
      checkAbove(node, engine);
    }
    assert(sequences === node.sequences, "a node counts its in-flight sequences and readers");
  }
  assert(index.size.pages === pages && index.size.nodes === nodes, "the index counts its pages and nodes");
  for (let engine = 0; engine < engines; engine++) {
    assert(index.pagesCached(engine) === counts[engine], "the index counts each engine's pages");
    checkOrder(index, engine, cachedNodes[engine]!);
  }
}

function checkShape(node: IndexNode): void {
  const parent = node.parent!;
  assert(node.pages > 0 && node.first === parent.end, "a node begins where its parent ends");
  assert(parent.children?.get(node.hashes[0]!) === node, "a parent finds its child");
  assert(node.children === null || node.children.size > 0, "a leaf has no empty map");
  assert(node.children !== null || node.needed() === node.pages, "a leaf has no page that no engine has");
}

function checkAbove(node: IndexNode, engine: number): void {
  const parent = node.parent!;
  const cached = node.cached(engine);
  const inFlight = node.inFlight(engine);
  const readers = node.readers(engine);
  assert(cached >= 0 && cached <= node.pages && inFlight >= 0 && readers >= 0, "counts are in range");
  if (parent.parent === null) return;
  assert(cached === 0 || parent.cached(engine) === parent.pages, "an engine's pages begin at the root");
  assert(inFlight <= parent.inFlight(engine), "in-flight sequences begin at the root");
  assert(readers <= parent.readers(engine), "readers begin at the root");
}

function checkOrder(index: PrefixIndex, engine: number, cached: Set<IndexNode>): void {
  for (const node of index.evictionOrder(engine)) {
    assert(cached.delete(node), "an engine's nodes are in its eviction order, once");
    for (const child of node.children?.values() ?? [])
      assert(!cached.has(child), "children are evicted before parents");
  }
  assert(cached.size === 0, "every node of an engine is in its eviction order");
}

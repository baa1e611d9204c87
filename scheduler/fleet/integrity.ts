import { assert } from "../../base/assert.ts";
import type { IndexNode } from "./index-node.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/**
 * Checks that the index hangs together: what engines have begins at the root and is in their eviction orders,
 * stems after their branches, and nothing is kept that no engine has. Costs a walk over everything.
 */
export function checkIndex(index: PrefixIndex, engines: number): void {
  const counts = new Int32Array(engines);
  const cachedSpans: Set<IndexNode>[] = Array.from({ length: engines }, () => new Set());
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
      if (cached > 0) cachedSpans[engine]!.add(node);
      sequences += node.inFlight(engine) + node.readers(engine);
      checkAbove(node, engine);
    }
    assert(sequences === node.sequences, "a span counts its promises and readers");
  }
  assert(index.size.pages === pages && index.size.nodes === nodes, "the index counts its pages and spans");
  for (let engine = 0; engine < engines; engine++) {
    assert(index.pagesCached(engine) === counts[engine], "the index counts each engine's pages");
    checkOrder(index, engine, cachedSpans[engine]!);
  }
}

function checkShape(node: IndexNode): void {
  const parent = node.parent!;
  assert(node.pages > 0 && node.first === parent.end, "a span begins where its parent ends");
  assert(parent.children?.get(node.hashes[0]!) === node, "a parent finds its child");
  assert(node.children === null || node.children.size > 0, "a leaf has no empty map");
  assert(
    node.children !== null || node.needed() === node.pages,
    "of a leaf nothing is kept that no engine has",
  );
}

function checkAbove(node: IndexNode, engine: number): void {
  const parent = node.parent!;
  const cached = node.cached(engine);
  const inFlight = node.inFlight(engine);
  const readers = node.readers(engine);
  assert(cached >= 0 && cached <= node.pages && inFlight >= 0 && readers >= 0, "counts are in range");
  if (parent.parent === null) return;
  assert(cached === 0 || parent.cached(engine) === parent.pages, "what an engine has begins at the root");
  assert(inFlight <= parent.inFlight(engine), "promises begin at the root");
  assert(readers <= parent.readers(engine), "readers begin at the root");
}

function checkOrder(index: PrefixIndex, engine: number, cached: Set<IndexNode>): void {
  for (const node of index.evictionOrder(engine)) {
    assert(cached.delete(node), "what an engine has is in its eviction order, once");
    for (const child of node.children?.values() ?? [])
      assert(!cached.has(child), "branches go before their stems");
  }
  assert(cached.size === 0, "everything that an engine has can be evicted");
}

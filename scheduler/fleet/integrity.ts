import { assert } from "../../base/assert.ts";
import type { IndexSpan } from "./index-span.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** Checks that the index hangs together: what engines have begins at the root and is in their eviction orders, stems
 *  after their branches, and nothing is kept that no engine has. Costs a walk over everything. */
export function checkIndex(index: PrefixIndex, engines: number): void {
  const counts = new Int32Array(engines);
  const cachedSpans: Set<IndexSpan>[] = Array.from({ length: engines }, () => new Set());
  let pages = 0;
  let spans = 0;
  for (const span of index.spans()) {
    pages += span.pages;
    spans += 1;
    checkShape(span);
    let sequences = 0;
    for (let engine = 0; engine < engines; engine++) {
      const cached = span.cached(engine);
      counts[engine]! += cached;
      if (cached > 0) cachedSpans[engine]!.add(span);
      sequences += span.promised(engine) + span.readers(engine);
      checkAbove(span, engine);
    }
    assert(sequences === span.sequences, "a span counts its promises and readers");
  }
  assert(index.size.pages === pages && index.size.spans === spans, "the index counts its pages and spans");
  for (let engine = 0; engine < engines; engine++) {
    assert(index.pagesCached(engine) === counts[engine], "the index counts each engine's pages");
    checkOrder(index, engine, cachedSpans[engine]!);
  }
}

function checkShape(span: IndexSpan): void {
  const parent = span.parent!;
  assert(span.pages > 0 && span.first === parent.end, "a span begins where its parent ends");
  assert(parent.children?.get(span.hashes[0]!) === span, "a parent finds its child");
  assert(span.children === null || span.children.size > 0, "a leaf has no empty map");
  assert(
    span.children !== null || span.needed() === span.pages,
    "of a leaf nothing is kept that no engine has",
  );
}

function checkAbove(span: IndexSpan, engine: number): void {
  const parent = span.parent!;
  const cached = span.cached(engine);
  const promised = span.promised(engine);
  const readers = span.readers(engine);
  assert(cached >= 0 && cached <= span.pages && promised >= 0 && readers >= 0, "counts are in range");
  if (parent.parent === null) return;
  assert(cached === 0 || parent.cached(engine) === parent.pages, "what an engine has begins at the root");
  assert(promised <= parent.promised(engine), "promises begin at the root");
  assert(readers <= parent.readers(engine), "readers begin at the root");
}

function checkOrder(index: PrefixIndex, engine: number, cached: Set<IndexSpan>): void {
  for (const span of index.evictionOrder(engine)) {
    assert(cached.delete(span), "what an engine has is in its eviction order, once");
    for (const child of span.children?.values() ?? [])
      assert(!cached.has(child), "branches go before their stems");
  }
  assert(cached.size === 0, "everything that an engine has can be evicted");
}

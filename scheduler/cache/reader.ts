import type { Sharing } from "../core.ts";
import { commonLength, edgeLimit, edgeOf, type Span } from "./radix-tree.ts";

/**
 * A prompt that waits to be computed, and how much of it is cached. From `follow` to `unfollow` the cache keeps its place
 * in the tree: no lookup is needed, however often what is cached changes, and a span knows how many are going to read it.
 */
export class Reader {
  readonly sharing: Sharing;
  /** Tokens [0, limit) are looked for; they do not change. */
  readonly tokens: Int32Array;
  readonly limit: number;
  /** Tokens that are cached, exact to the token. They end in `span`; null: it is not followed. */
  depth = 0;
  span: Span | null = null;
  /** Told when `depth` has changed. */
  readonly onChange: () => void;

  constructor(sharing: Sharing, tokens: Int32Array, limit: number, onChange: () => void) {
    this.sharing = sharing;
    this.tokens = tokens;
    this.limit = limit;
    this.onChange = onChange;
  }
}

/** The reader's match ends in `span` now, `depth` tokens from the root. Counts are the caller's. */
export function moveReader(reader: Reader, span: Span | null, depth: number): void {
  if (reader.span !== span) {
    const before = reader.span;
    before?.ending?.delete(reader);
    if (before?.ending?.size === 0) before.ending = null;
    if (span !== null) {
      span.ending ??= new Set();
      span.ending.add(reader);
    }
    reader.span = span;
  }
  if (reader.depth === depth) return;
  reader.depth = depth;
  reader.onChange();
}

/** `lower` was cut: those whose match ends above the cut stay there. */
export function splitReaders(upper: Span, lower: Span): void {
  upper.readers = lower.readers;
  for (const reader of lower.ending ?? []) {
    if (reader.depth > upper.end) continue;
    moveReader(reader, upper, reader.depth);
    lower.readers -= 1;
  }
}

/** `leaf` is new: readers that continue from its parent as it does find more. */
export function advanceReaders(leaf: Span): void {
  const { start, tokens, edge } = leaf;
  for (const reader of leaf.parent?.ending ?? []) {
    const { depth, limit, sharing } = reader;
    if (depth < start || limit === start || edgeOf(reader.tokens, start, sharing) !== edge) continue;
    leaf.readers += 1;
    const end = edgeLimit(start, limit, sharing);
    moveReader(reader, leaf, start + commonLength(reader.tokens, start, end, tokens));
  }
}

/** Of `leaf` tokens from `end` on are gone, all of them if it begins there: its readers find less. */
export function recedeReaders(leaf: Span, end: number): void {
  for (const reader of leaf.ending ?? []) {
    if (end > leaf.start) moveReader(reader, leaf, Math.min(reader.depth, end));
    else {
      leaf.readers -= 1;
      moveReader(reader, leaf.parent, leaf.start);
    }
  }
}

import { commonLength, type Span } from "./radix-tree.ts";

/**
 * A prompt that waits to be computed, and how much of it is cached. From `follow` to `unfollow` the cache keeps its place
 * in the tree: no lookup is needed, however often what is cached changes, and a span knows how many are going to read it.
 */
export class Reader {
  readonly key: string;
  /** Tokens [0, limit) are looked for; they do not change. */
  readonly tokens: Int32Array;
  readonly limit: number;
  /** Tokens that are cached, exact to the token. They end in `span`; null: it is not followed. */
  depth = 0;
  span: Span | null = null;
  /** Told when `depth` has changed. */
  readonly onChange: () => void;

  constructor(key: string, tokens: Int32Array, limit: number, onChange: () => void) {
    this.key = key;
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
  const { start, tokens } = leaf;
  for (const reader of leaf.parent?.ending ?? []) {
    if (reader.depth < start || reader.tokens[start] !== tokens[0] || reader.limit === start) continue;
    leaf.readers += 1;
    moveReader(reader, leaf, start + commonLength(reader.tokens, start, reader.limit, tokens));
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

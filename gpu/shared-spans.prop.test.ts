/**
 * Properties on shuffled trees of sequences: the order groups chunks that share pages, and spans cover each
 * shared page once.
 */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import type { Chunk, SequenceId } from "../scheduler/core.ts";
import { runs } from "../tests/support/property.ts";
import { sharingOrder } from "./shared-spans.ts";

const pageTokens = 16;

/** A sequence with pages and tokens of its own; or a node with pages that all sequences below it share. */
type Node =
  | { readonly pages: number; readonly tokens: number }
  | { readonly pages: number; readonly below: readonly Node[] };

const { tree } = fc.letrec<{ tree: Node; sequence: Node }>((tie) => ({
  sequence: fc.record({ pages: fc.nat(3), tokens: fc.integer({ min: 1, max: 20 }) }),
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    tie("sequence"),
    fc.record({
      pages: fc.integer({ min: 1, max: 4 }),
      below: fc.array(tie("tree"), { minLength: 1, maxLength: 4 }),
    }),
  ),
}));

/** Chunks of a forest. A sequence's `pages` are full, and its tokens start after them. */
function chunksOf(forest: readonly Node[]): Chunk[] {
  const chunks: Chunk[] = [];
  let nextPage = 0;
  const take = (count: number): number[] => Array.from({ length: count }, () => nextPage++);
  const visit = (node: Node, prefix: readonly number[]): void => {
    const full = [...prefix, ...take(node.pages)];
    if ("below" in node) {
      for (const each of node.below) visit(each, full);
      return;
    }
    const start = full.length * pageTokens;
    const pages = [...full, ...take(Math.ceil(node.tokens / pageTokens))];
    chunks.push({
      sequence: chunks.length as SequenceId,
      start,
      tokens: new Int32Array(node.tokens),
      pages: Int32Array.from(pages),
      samples: [],
      adapter: 0,
    });
  };
  for (const node of forest) visit(node, []);
  return chunks;
}

const shuffled = fc
  .array(tree, { maxLength: 4 })
  .map(chunksOf)
  .chain((chunks) => fc.shuffledSubarray(chunks, { minLength: chunks.length }));

describe("chunks that share pages", () => {
  test("lie together, below spans that keep the contract of engine.h", () => {
    fc.assert(
      fc.property(shuffled, (chunks) => {
        const { order, spans } = sharingOrder(chunks, pageTokens);
        expect([...order].sort((a, b) => a - b)).toEqual(chunks.map((_, i) => i));
        expect(spans.length).toBeLessThan(Math.max(1, chunks.length));
        /** End of the positions that earlier spans cover, by chunk. */
        const covered = new Map<number, number>();
        for (const { chunkBegin, chunkEnd, begin, end } of spans) {
          expect(chunkEnd - chunkBegin).toBeGreaterThanOrEqual(2);
          expect(end).toBeGreaterThan(begin);
          const members = order.slice(chunkBegin, chunkEnd);
          const pagesOf = (index: number) => [
            ...chunks[index]!.pages.subarray(begin / pageTokens, end / pageTokens),
          ];
          for (const index of members) {
            expect(covered.get(index) ?? 0).toBe(begin);
            covered.set(index, end);
            expect(end).toBeLessThanOrEqual(chunks[index]!.start);
            expect(pagesOf(index)).toEqual(pagesOf(members[0]!));
          }
        }
      }),
      runs(300),
    );
  });

  test("read every full page once", () => {
    fc.assert(
      fc.property(shuffled, (chunks) => {
        const { spans } = sharingOrder(chunks, pageTokens);
        const full = (chunk: Chunk) => chunk.start / pageTokens;
        let read = chunks.reduce((sum, chunk) => sum + full(chunk), 0);
        for (const { chunkBegin, chunkEnd, begin, end } of spans) {
          read -= ((chunkEnd - chunkBegin - 1) * (end - begin)) / pageTokens;
        }
        const distinct = new Set(chunks.flatMap((chunk) => [...chunk.pages.subarray(0, full(chunk))]));
        expect(read).toBe(distinct.size);
      }),
      runs(300),
    );
  });

  test("stay as they came where nothing is shared", () => {
    const alone = (first: number): Chunk => ({
      sequence: first as SequenceId,
      start: 40,
      tokens: new Int32Array(1),
      pages: Int32Array.of(first, first + 1, first + 2),
      samples: [],
      adapter: 0,
    });
    expect(sharingOrder([alone(9), alone(3), alone(6)], pageTokens)).toEqual({ order: [0, 1, 2], spans: [] });
  });
});

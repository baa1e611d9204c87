/**
 * Finds chunks of a step that read the same pages, so that an engine can read those pages once (engine.h,
 * `shared`).
 *
 * The page tables suffice: each begins with the pages from the prefix cache, and equal pages at equal indices
 * hold the same keys and values. The result is an order in which chunks that share pages are adjacent, like
 * the leaves of a tree:
 *
 *   pages        0 1 2 3 4 5          chunks in order   A B C | D E | F
 *   A            a b c d e f          spans, parents first
 *   B            a b c d g h            A B C: pages 0-1     (a b)
 *   C            a b x y                A B:   pages 2-3     (c d)
 *   D            p q r                  D E:   page 0        (p)
 *   E            p s
 *   F            t u
 */
import type { Chunk } from "../scheduler/core.ts";

/** Chunks [chunkBegin, chunkEnd) of the order share the pages of positions [begin, end). */
export interface SharedSpan {
  readonly chunkBegin: number;
  readonly chunkEnd: number;
  readonly begin: number;
  readonly end: number;
}

export interface SharingOrder {
  /** Indices of the step's chunks: by adapter, and in their original order if nothing is shared. */
  readonly order: readonly number[];
  /** Spans, parents first; each begins where its parent ends. */
  readonly spans: readonly SharedSpan[];
}

/**
 * Computes order and spans. Only pages that were full when a chunk began are shared: [0, start) cut to whole
 * pages. Costs O(chunks + shared pages of all chunks).
 */
export function sharingOrder(chunks: readonly Chunk[], pageTokens: number): SharingOrder {
  const order: number[] = [];
  const spans: SharedSpan[] = [];

  /** Appends chunks that share their first `depth` pages. */
  const append = (members: readonly number[], depth: number): void => {
    for (const group of byPage(members, depth)) {
      if (group.length === 1) {
        order.push(group[0]!);
        continue;
      }
      const end = commonDepth(group, depth + 1);
      const chunkBegin = order.length;
      const span = { chunkBegin, chunkEnd: chunkBegin + group.length };
      spans.push({ ...span, begin: depth * pageTokens, end: end * pageTokens });
      append(group, end);
    }
  };

  /**
   * Groups members by their page at `depth`, in order of appearance. A member whose page there is not full
   * gets its own group.
   */
  const byPage = (members: readonly number[], depth: number): Iterable<readonly number[]> => {
    const groups = new Map<number, number[]>();
    for (const member of members) {
      const { pages, start } = chunks[member]!;
      const key = (depth + 1) * pageTokens <= start ? pages[depth]! : -1 - member;
      const group = groups.get(key);
      if (group === undefined) groups.set(key, [member]);
      else group.push(member);
    }
    return groups.values();
  };

  /** Number of full pages that all members share, at least `least`. */
  const commonDepth = (members: readonly number[], least: number): number => {
    const first = chunks[members[0]!]!.pages;
    let depth = Number.POSITIVE_INFINITY;
    for (const member of members) {
      const { pages, start } = chunks[member]!;
      depth = Math.min(depth, Math.floor(start / pageTokens));
      let common = least;
      while (common < depth && pages[common] === first[common]) common += 1;
      depth = common;
    }
    return depth;
  };

  const members = chunks.map((_, index) => index);
  // Engines multiply neighbouring rows of one adapter together. Sequences of different adapters share no pages.
  if (chunks.some(({ adapter }) => adapter !== 0))
    members.sort((a, b) => chunks[a]!.adapter - chunks[b]!.adapter);
  append(members, 0);
  return { order, spans };
}

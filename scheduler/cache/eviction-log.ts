import type { RadixNode } from "./radix-tree.ts";
import { sharingOfPath } from "./tier-paths.ts";

/** Evictions that are kept. */
const KEPT_MAX = 64;

/**
 * Reason why a node was evicted before all others. no_checkpoint: no prompt could begin from it, since it has no
 * checkpoint of a recurrent state. least_recent: it was the least recently used one. awaited: only nodes that
 * waiting sequences will read were left.
 */
export type EvictionReason = "no_checkpoint" | "least_recent" | "awaited";

/** Eviction of the last pages of a node. */
export interface Eviction {
  /** Counts all evictions of the cache, from 0. */
  readonly number: number;
  readonly reason: EvictionReason;
  /** Cache key of its tokens, and that of the sequence that needed the pages; "": public text, or not known. */
  readonly of: string;
  readonly by: string;
  /** Evicted tokens [start, end), pages, and sequences that had begun from the node. */
  readonly start: number;
  readonly end: number;
  readonly pages: number;
  readonly reads: number;
  /** True if the lower tier has the pages. */
  readonly isStored: boolean;
  /** Pages that could have been evicted, these included. */
  readonly pagesEvictable: number;
}

/** The last evictions of a cache. */
export class EvictionLog {
  readonly #pageTokens: number;
  readonly #last: Eviction[] = [];
  #count = 0;

  constructor(pageTokens: number) {
    this.#pageTokens = pageTokens;
  }

  /** Notes that the last `pages` pages of a leaf are about to be evicted. */
  note(leaf: RadixNode, pages: number, facts: Pick<Eviction, "reason" | "by" | "pagesEvictable">): void {
    const kept = Math.floor(leaf.start / this.#pageTokens) + leaf.pages.length - pages;
    this.#last.push({
      ...facts,
      number: this.#count++,
      of: sharingOfPath(leaf, this.#pageTokens).key,
      start: Math.max(leaf.start, kept * this.#pageTokens),
      end: leaf.end,
      pages,
      reads: leaf.reads,
      isStored: pages > 0 && leaf.stored >= leaf.hashes.length && leaf.stored > 0,
    });
    if (this.#last.length > KEPT_MAX) this.#last.shift();
  }

  /** The last evictions, newest first. */
  get last(): readonly Eviction[] {
    return this.#last.toReversed();
  }
}

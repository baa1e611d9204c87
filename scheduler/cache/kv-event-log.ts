import type { Cache, CacheObserver } from "./cache.ts";
import type { RadixNode } from "./radix-tree.ts";

/**
 * Pages that an engine's prefix cache gained or lost. The dispatcher follows these events with an index of
 * each engine's cache.
 *
 * Events name whole pages only, each by the hash of all tokens up to its end (cache/page-hash.ts). A hash
 * only guides placement: the engine compares tokens before it reuses a page.
 */
export interface KvEvent {
  readonly kind: "insert" | "evict";
  /** Hashes of pages 0 … end-1 of a path from the root. */
  readonly path: Float64Array;
  /** Pages [from, end) of the path are cached now, or no longer; those before are cached in both cases. */
  readonly from: number;
}

/** The events since the previous report, in order. */
export interface KvEvents {
  /** The engine's incarnation: 0, and one more each time it is replaced. */
  readonly epoch: number;
  /** 0, 1, 2 … within an epoch. A gap means that a report was lost, and calls for a `resync`. */
  readonly number: number;
  /** True if `events` inserts the whole tree and voids all earlier ones: the answer to a `resync`. */
  readonly isWhole: boolean;
  readonly events: readonly KvEvent[];
}

interface Draft extends KvEvent {
  readonly node: RadixNode;
  from: number;
}

/** Collects the KV events of a cache, one batch per report. */
export class KvEventLog implements CacheObserver {
  readonly #epoch: number;
  readonly #pageTokens: number;
  #drafts: Draft[] = [];
  #number = 0;
  #isWhole = false;

  /** `epoch`: the engine's incarnation. */
  constructor(pageTokens: number, epoch: number) {
    this.#pageTokens = pageTokens;
    this.#epoch = epoch;
  }

  inserted(node: RadixNode): void {
    const from = Math.floor(node.start / this.#pageTokens);
    if (node.hashes.length > 0) this.#drafts.push({ kind: "insert", path: this.#pathOf(node), from, node });
  }

  evicting(node: RadixNode, from: number): void {
    const end = Math.floor(node.end / this.#pageTokens);
    if (from === end) return;
    // Evictions of a node page by page are one event, with the path as it was at first.
    const last = this.#drafts.at(-1);
    if (last?.kind === "evict" && last.node === node && last.from === end) last.from = from;
    else this.#drafts.push({ kind: "evict", path: this.#pathOf(node), from, node });
  }

  /** Makes the next batch insert everything that is cached. */
  resync(): void {
    this.#isWhole = true;
  }

  /** Returns the events since the last call; null if there are none. */
  take(cache: Cache): KvEvents | null {
    if (this.#isWhole) {
      this.#drafts = [];
      for (const { node } of cache.nodes()) this.inserted(node);
    } else if (this.#drafts.length === 0) return null;
    const events = this.#drafts.map(({ kind, path, from }) => ({ kind, path, from }));
    const batch = { epoch: this.#epoch, number: this.#number, isWhole: this.#isWhole, events };
    this.#number += 1;
    this.#drafts = [];
    this.#isWhole = false;
    return batch;
  }

  /** Hashes of the whole pages of tokens [0, node.end). */
  #pathOf(node: RadixNode): Float64Array {
    let pages = Math.floor(node.end / this.#pageTokens);
    const path = new Float64Array(pages);
    for (let at: RadixNode | null = node; at !== null; at = at.parent) {
      const { hashes } = at;
      pages -= hashes.length;
      // A loop is faster than `set` for the few pages of a chunk.
      if (hashes.length > 16) path.set(hashes, pages);
      else for (let i = 0; i < hashes.length; i++) path[pages + i] = hashes[i]!;
    }
    return path;
  }
}

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

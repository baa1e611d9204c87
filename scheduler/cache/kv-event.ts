/**
 * What an engine's prefix cache tells the fleet, so that the dispatcher knows every true prefix tree.
 *
 * Only whole pages are told. A page is named by the hash of everything up to its end (cache/page-hash.ts). A
 * hash only guides placement: what is reused is decided by the engine, which compares tokens.
 */
export interface KvEvent {
  readonly kind: "insert" | "evict";
  /** Hashes of pages 0 … end-1 of a path from the root. */
  readonly path: Float64Array;
  /** Pages [from, end) of the path are cached now, or no longer; those before are cached in both cases. */
  readonly from: number;
}

/** All notices since the report before, in order. */
export interface KvEvents {
  /** Which life of the engine: 0, and one more each time it is replaced. */
  readonly epoch: number;
  /** 0, 1, 2 … within an epoch. A gap means that something was lost, and calls for a `resync`. */
  readonly number: number;
  /** Everything told before is void; `kvEvents` inserts the whole tree. The answer to a `resync`. */
  readonly isWhole: boolean;
  readonly kvEvents: readonly KvEvent[];
}

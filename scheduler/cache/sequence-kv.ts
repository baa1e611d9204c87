import { assert } from "../../base/assert.ts";
import { part } from "../../base/part.ts";
import type { PageId, StateSlot } from "../core.ts";
import type { CacheLock } from "./cache.ts";
import type { SavedState } from "./checkpoints.ts";
import type { Checkpoint, CheckpointKind, PrefixWaiter } from "./radix-tree.ts";

const noPages = new Int32Array(0);

/** The recurrent state of a running sequence. Written by kv-cache-manager.ts alone. */
export interface SequenceState {
  /** Its slot: the state after `computed` tokens, unless `from` has it. */
  slot: StateSlot;
  /**
   * Slot to which the step in flight saves the state before its drafts, to restore after a rejection; null: the
   * step has no drafts.
   */
  spare: StateSlot | null;
  /** Pinned checkpoint from which its first chunk begins; null: `slot` has the state, or nothing is computed yet. */
  from: Checkpoint | null;
  /** Page borders at which a checkpoint is wanted, rising. */
  wanted: readonly (readonly [depth: number, kind: CheckpointKind])[];
  /** Kind of the checkpoint at the end of the sequence. */
  readonly end: CheckpointKind;
  /** Checkpoints that the step in flight makes, by rising depth. */
  saving: readonly SavedState[];
}

/** The keys, values and state that a device holds of one sequence. Written by kv-cache-manager.ts alone. */
export class SequenceKv {
  /** Tracks how much of a waiting sequence is cached; null: it does not wait. */
  waiter: PrefixWaiter | null = null;
  /** The lock of a running sequence on whole pages, [0, lockedPages × pageTokens); else null. */
  lock: CacheLock | null = null;
  lockedPages = 0;
  /** Pages in the table: locked ones, then the sequence's own. */
  pageCount = 0;
  /** Number of tokens whose keys and values are in these pages. */
  computed = 0;
  /** Its recurrent state while it runs; null: the model has none. */
  state: SequenceState | null = null;
  /**
   * Number of tokens when it was admitted: pages up to here are published as soon as they are computed, the
   * rest at the end.
   */
  promptEnd = 0;
  #pages: Int32Array = noPages;
  /** The last result of `pageTable`; null: the table has changed since. */
  #pageTable: Int32Array | null = null;

  /** Number of cached tokens, while it waits, that it need not compute. */
  get cachedTokens(): number {
    return this.waiter?.usable ?? 0;
  }

  /**
   * The page table: valid up to `pageCount`, until the next `addPage`. A caller that rewrites entries calls
   * `pagesRewritten`.
   */
  get pages(): Int32Array {
    return this.#pages;
  }

  /**
   * Returns the table's first `count` pages. Decodes ask for the same ones many times, so the last result is
   * kept.
   */
  pageTable(count: number): Int32Array {
    assert(count <= this.pageCount, "the pages of a chunk are reserved before it is planned");
    if (this.#pageTable?.length !== count) this.#pageTable = part(this.#pages, 0, count);
    return this.#pageTable;
  }

  /** Forgets the last result of `pageTable` after entries were rewritten. */
  pagesRewritten(): void {
    this.#pageTable = null;
  }

  /** Makes room in the table for `count` pages. */
  reservePages(count: number): void {
    if (count <= this.#pages.length) return;
    const pages = new Int32Array(count);
    pages.set(this.#pages);
    this.#pages = pages;
  }

  /** Takes the last page out of the table. */
  takePage(): PageId {
    assert(this.pageCount > this.lockedPages, "locked pages stay");
    this.pageCount -= 1;
    this.#pageTable = null;
    return this.#pages[this.pageCount]! as PageId;
  }

  addPage(page: PageId): void {
    if (this.pageCount === this.#pages.length) this.reservePages(Math.max(8, 2 * this.pageCount));
    this.#pages[this.pageCount] = page;
    this.pageCount += 1;
    this.#pageTable = null;
  }
}

import type { TokenId } from "../../base/token.ts";
import type { PageId, Sharing, StateSlot } from "../core.ts";

/**
 * The whole pages of a prompt, as a tier looks them up: by cache key and all tokens up to each page's end. Later
 * calls for the same prompt often pass the same object, so that a tier may cache its hashes.
 */
export interface PagesOf {
  readonly sharing: Sharing;
  readonly tokens: ArrayLike<TokenId>;
}

/** Times and sizes of a tier, as measured; they may change while it serves. */
export interface TierCosts {
  readonly pageBytes: number;
  /** Number of pieces of up to a page's size that a recurrent state is stored in; 0: the tier stores no states. */
  readonly statePages: number;
  /** Milliseconds until a load begins. */
  readonly latencyMs: number;
  /** Milliseconds to load a page, or a piece of a state. */
  readonly loadPageMs: number;
  /** Milliseconds that `store` and `storeState` take of their caller's time for each page, or piece. */
  readonly storePageMs: number;
}

/**
 * End of a load. `valid`: number of leading pages that were loaded intact, plus one if the state was, too. The
 * first missing or damaged page or piece ends them. `fromHost`: pages among them from the host's memory, not from
 * the disk below it.
 */
export type LoadDone = (valid: number, fromHost: number) => void;

/**
 * Port: whole KV pages outside of the device's memory, and recurrent states at page borders. They outlive
 * eviction and, on disk, the process. The scheduler decides what is stored and loaded. The tier decides what
 * it drops.
 */
export interface LowerTier {
  readonly costs: TierCosts;
  /** Returns the end of the pages that the tier has from page `first` on, without a gap; `first`: none. */
  find(prompt: PagesOf, first: number): number;
  /**
   * Returns the deepest end in (first, end] of leading pages of the prompt whose state the tier has; `first`:
   * none.
   */
  findState(prompt: PagesOf, first: number, end: number): number;
  /** Returns the milliseconds to load a page of the prompt, on average over those that it has of [first, end). */
  loadPageMs(prompt: PagesOf, first: number, end: number): number;
  /**
   * Copies pages [first, first + pages.length) of the prompt from the device at once, and stores them in the
   * background. It stores none twice. Returns how many leading pages it has then:
   * fewer if too many wait to be written.
   */
  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number;
  /**
   * Does the same with pieces [first, first + count) of the state in `slot`, which is the one after pages
   * [0, end) of the prompt.
   */
  storeState(prompt: PagesOf, end: number, slot: StateSlot, first: number, count: number): number;
  /**
   * Loads pages of the prompt from page `first` on into `pages` of the device, and the state after the last of
   * them into `slot` (null: none). No step reads or writes these before `done`. Calls `done` once,
   * later.
   */
  load(
    prompt: PagesOf,
    first: number,
    pages: readonly PageId[],
    slot: StateSlot | null,
    done: LoadDone,
  ): void;
}

import type { TokenId } from "../../base/token.ts";
import type { PageId, Sharing } from "../core.ts";

/**
 * The whole pages of a prompt, as a tier finds them: by all tokens up to each page's end, and by key. Later
 * calls for the same prompt often pass the same object, so that a tier may keep its hashes.
 */
export interface PagesOf {
  readonly sharing: Sharing;
  readonly tokens: ArrayLike<TokenId>;
}

/** Times and sizes of a tier, as measured; they may change while it serves. */
export interface TierCosts {
  readonly pageBytes: number;
  /** Milliseconds until a load begins, and for each of its pages. */
  readonly latencyMs: number;
  readonly loadPageMs: number;
  /** Milliseconds that `store` takes of its caller's time for each page. */
  readonly storePageMs: number;
}

/**
 * Port: whole KV pages outside of the device's memory. Its pages outlive eviction and, on disk, the process.
 * The scheduler decides which pages are stored and loaded. The tier decides which of its own pages it drops.
 */
export interface LowerTier {
  readonly costs: TierCosts;
  /** Returns the end of the pages that the tier has from page `first` on, without a gap; `first`: none. */
  find(prompt: PagesOf, first: number): number;
  /**
   * Copies pages [first, first + pages.length) of the prompt from the device at once, and stores them in the
   * background; those that it has already are not stored again. Returns how many leading pages it has then:
   * fewer if too many wait to be written.
   */
  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number;
  /**
   * Loads pages of the prompt from page `first` on into `pages` of the device, which no step reads or writes
   * before `done`. Calls `done` once, later, with the number of leading pages that are right: a page that is
   * gone, or whose contents are in doubt, ends them.
   */
  load(prompt: PagesOf, first: number, pages: readonly PageId[], done: (right: number) => void): void;
}

import { assert } from "../../base/assert.ts";
import type { PageId } from "../core.ts";

/**
 * The KV pages of one device. A page is free or has exactly one holder, and only that one may release it:
 *
 *   holder       may write it   end of the hold
 *   a sequence   yes            released, or handed over to the cache (cache/kv-cache-manager.ts)
 *   a node       no             released when the node is evicted or shortened (cache/cache.ts)
 */
export class PagePool {
  readonly pagesTotal: number;
  /** Tokens per page. */
  readonly pageTokens: number;
  /** Stack of free pages: its first `#freeCount` entries. */
  readonly #free: Int32Array;
  #freeCount: number;
  readonly #isFree: Uint8Array;

  constructor(pagesTotal: number, pageTokens: number) {
    assert(pagesTotal > 0 && pageTokens > 0, "a device has pages, and pages hold tokens");
    this.pagesTotal = pagesTotal;
    this.pageTokens = pageTokens;
    this.#free = Int32Array.from({ length: pagesTotal }, (_, index) => pagesTotal - 1 - index);
    this.#freeCount = pagesTotal;
    this.#isFree = new Uint8Array(pagesTotal).fill(1);
  }

  get pagesFree(): number {
    return this.#freeCount;
  }

  /** Allocates a free page; there must be one. Its contents are undefined. */
  take(): PageId {
    assert(this.#freeCount > 0, "out of pages: room was not made first");
    this.#freeCount -= 1;
    const page = this.#free[this.#freeCount]! as PageId;
    this.#isFree[page] = 0;
    return page;
  }

  release(page: PageId): void {
    assert(this.#isFree[page] === 0, "a page is released once, by its holder");
    this.#isFree[page] = 1;
    this.#free[this.#freeCount] = page;
    this.#freeCount += 1;
  }

  isFree(page: PageId): boolean {
    return this.#isFree[page] === 1;
  }
}

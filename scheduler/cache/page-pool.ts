import { assert } from "../../base/assert.ts";
import type { PageId } from "../core.ts";
import { IdPool } from "./id-pool.ts";

/**
 * The KV pages of one device. Their holders:
 *
 *   holder       may write it   end of the hold
 *   a sequence   yes            released, or handed over to the cache (cache/kv-cache-manager.ts)
 *   a node       no             released when the node is evicted or shortened (cache/cache.ts)
 */
export class PagePool extends IdPool<PageId> {
  /** Tokens per page. */
  readonly pageTokens: number;

  constructor(pagesTotal: number, pageTokens: number) {
    super(pagesTotal);
    assert(pageTokens > 0, "pages hold tokens");
    this.pageTokens = pageTokens;
  }

  get pagesTotal(): number {
    return this.total;
  }

  get pagesFree(): number {
    return this.freeCount;
  }
}

import type { PageId } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { CacheObserver } from "./cache.ts";
import type { CheckpointPolicy } from "./checkpoints.ts";
import type { LowerTier, PagesOf } from "./lower-tier.ts";
import type { PagePool } from "./page-pool.ts";
import { Checkpoint, type RadixNode, tokensOf } from "./radix-tree.ts";
import { ReadShares } from "./read-shares.ts";
import { isInTree, pathTo, sharingOfPath } from "./tier-paths.ts";
import { computeMs, delayedBy, pageMs } from "./tier-prices.ts";

/** Share of the engine thread's time that stores may take. */
const TIME_SHARE = 0.01;
/** Unused time that may accumulate, in milliseconds; the time of one page if that is more. */
const SAVED_MS_MAX = 1;
/** Milliseconds of one piece of stores on an idle engine, which a request that arrives may wait for. */
const IDLE_PIECE_MS = 1;
/** Milliseconds until an idle engine continues, doubled each time that the tier accepts nothing. */
const IDLE_PAUSE_MS = 1;
/** Pieces without progress after which an idle engine stops trying. */
const FRUITLESS_MAX = 12;
/** Price of the bytes written, as a share of the time to load them. */
const WRITE_SHARE = 1 / 64;
/** Weight of the last step in the moving average of delayed sequences. */
const EMA_WEIGHT = 1 / 64;
/** Weight of the prior of a kind's read share, in pages; and the count past which counts are halved. */
const EXPECTED_PAGES = 1024;
const COUNTED_PAGES = 16_384;

/**
 * Pages and pieces that were stored. `isDone`: nothing else is worth storing. Otherwise the requested number was
 * stored, or the tier accepts no more now.
 */
interface Stored {
  readonly pages: number;
  readonly isDone: boolean;
}

/**
 * Stores pages of the prefix cache on the lower tier. A page is worth storing if its expected saving in
 * milliseconds exceeds the price of its bytes. The probability of another read weighs what a load saves: the
 * prefill for its reader and for the sequences that wait meanwhile, as many as waited recently. The probability is
 * learnt from pages of its kind (read-shares.ts), and is 1 while a prompt waits for the page.
 *
 * Pages are candidates as soon as the cache has them, so that few are lost with the process. The engine stores
 * them between steps, in pieces that take a small share of its time, and at the latest when it evicts them. A path
 * is stored from its beginning, since a lookup ends at the first gap.
 *
 * With recurrent states, prompts begin at checkpoints. So checkpoints at page borders are the candidates, each
 * with the pages before it. Their probability is the one by which checkpoints are evicted.
 */
export class TierStores implements CacheObserver {
  readonly #tier: LowerTier;
  readonly #pool: PagePool;
  readonly #costs: CostModel;
  /** Null: the model has no states. */
  readonly #checkpoints: Pick<CheckpointPolicy, "chance"> | null;
  readonly #shares = new ReadShares(EXPECTED_PAGES, COUNTED_PAGES);
  /** The deepest nodes with pages that may be worth storing, or checkpoints, in the order in which they came. */
  readonly #candidates = new Set<RadixNode | Checkpoint>();
  /** The last path of which pages were stored, as the tier gets it. */
  #last: { readonly node: RadixNode; readonly prompt: PagesOf } | null = null;
  /** True while the cache inserts pages that were loaded from the tier. */
  #isLoading = false;
  #delayed = 1;
  /** Milliseconds that stores may take now, and the time of the last change. */
  #savedMs = 0;
  #savedAtMs = Number.NEGATIVE_INFINITY;
  #wakeMs: number | null = null;
  /** Number of idle pieces in a row of which the tier accepted nothing. */
  #fruitless = 0;
  #pagesStored = 0;
  #hasNews = false;

  constructor(
    tier: LowerTier,
    pool: PagePool,
    costs: CostModel,
    checkpoints: Pick<CheckpointPolicy, "chance"> | null,
  ) {
    this.#tier = tier;
    this.#pool = pool;
    this.#costs = costs;
    this.#checkpoints = checkpoints;
  }

  /** Pages stored so far, and pieces of states. */
  get pagesStoredTotal(): number {
    return this.#pagesStored;
  }

  /** True once after the last candidate was stored. */
  takeNews(): boolean {
    if (!this.#hasNews || this.#candidates.size > 0) return false;
    this.#hasNews = false;
    return true;
  }

  /** Time at which an idle engine continues with stores; null: it need not. */
  get wakeMs(): number | null {
    return this.#wakeMs;
  }

  inserted(node: RadixNode): void {
    const pages = this.#wholePages(node);
    if (this.#isLoading) {
      node.stored = pages;
      return;
    }
    if (this.#checkpoints !== null) return;
    this.#shares.used(node.kind, null, pages);
    if (node.parent !== null) this.#candidates.delete(node.parent);
    this.#candidates.add(node);
    this.#fruitless = 0;
  }

  evicting(): void {}

  dropping(leaf: RadixNode, count: number): void {
    if (this.#checkpoints === null && leaf.stored < this.#wholePages(leaf))
      this.#storePath(leaf, this.#affordable(this.#savedMs));
    const left = leaf.pages.length - count;
    leaf.stored = Math.min(leaf.stored, left);
    if (left > 0) return;
    this.#candidates.delete(leaf);
    if (this.#last?.node === leaf) this.#last = null;
  }

  saved(checkpoint: Checkpoint): void {
    if (checkpoint.depth % this.#pool.pageTokens !== 0) return;
    if (this.#isLoading) {
      checkpoint.stored = this.#tier.costs.statePages;
      return;
    }
    this.#candidates.add(checkpoint);
    this.#fruitless = 0;
  }

  dropped(checkpoint: Checkpoint): void {
    this.#candidates.delete(checkpoint);
  }

  /** Records that a sequence begins from the path that ends with `node`. */
  read(node: RadixNode): void {
    if (this.#checkpoints !== null) return;
    for (let at = node; at.parent !== null; at = at.parent) {
      this.#shares.used(at.kind, at.reads, this.#wholePages(at));
      at.reads += 1;
    }
  }

  /** Calls `insert`, which inserts pages that were loaded from the tier: they are stored already. */
  loading(insert: () => void): void {
    this.#isLoading = true;
    insert();
    this.#isLoading = false;
  }

  /**
   * Stores candidates for as long as the share of the time allows, or for a piece of an idle engine's time.
   * `waiting`: sequences that a prompt's computation delays.
   */
  store(nowMs: number, isIdle: boolean, waiting: number): void {
    this.#delayed += (delayedBy(waiting) - this.#delayed) * EMA_WEIGHT;
    this.#wakeMs = null;
    const mostMs = Math.max(SAVED_MS_MAX, this.#tier.costs.storePageMs);
    this.#savedMs = Math.min(mostMs, this.#savedMs + TIME_SHARE * Math.max(0, nowMs - this.#savedAtMs));
    this.#savedAtMs = nowMs;
    if (this.#candidates.size === 0) return;
    const budgetMs = isIdle ? Math.max(IDLE_PIECE_MS, this.#savedMs) : this.#savedMs;
    const affordable = this.#affordable(budgetMs);
    let left = isIdle ? Math.max(1, affordable) : affordable;
    const before = left;
    for (const candidate of this.#inOrder()) {
      if (left === 0) break;
      const stored = this.#storeCandidate(candidate, left);
      left -= stored.pages;
      if (!stored.isDone) break;
      this.#candidates.delete(candidate);
    }
    if (isIdle && this.#candidates.size > 0) this.#pause(nowMs, left < before);
  }

  /** Candidates in the order in which they are stored: checkpoints at the ends of prompts first, new before old. */
  #inOrder(): Iterable<RadixNode | Checkpoint> {
    if (this.#checkpoints === null) return this.#candidates;
    const isFirst = (one: RadixNode | Checkpoint): boolean => one.kind === "prompt";
    const latest = [...this.#candidates].reverse();
    return [...latest.filter(isFirst), ...latest.filter((one) => !isFirst(one))];
  }

  #storeCandidate(candidate: RadixNode | Checkpoint, most: number): Stored {
    if (candidate instanceof Checkpoint) return this.#storeState(candidate, most);
    return isInTree(candidate) ? this.#storePath(candidate, most) : { pages: 0, isDone: true };
  }

  #pause(nowMs: number, hasStored: boolean): void {
    this.#fruitless = hasStored ? 0 : this.#fruitless + 1;
    if (this.#fruitless < FRUITLESS_MAX) this.#wakeMs = nowMs + IDLE_PAUSE_MS * 2 ** this.#fruitless;
  }

  /** Number of pages whose copies take up to `ms`. */
  #affordable(ms: number): number {
    const { storePageMs } = this.#tier.costs;
    return storePageMs > 0 ? Math.max(0, Math.floor(ms / storePageMs)) : this.#pool.pagesTotal;
  }

  /** Stores up to `most` pages before a checkpoint and pieces of its state, if they are worth storing. */
  #storeState(checkpoint: Checkpoint, most: number): Stored {
    const node = checkpoint.node!;
    if (!this.#isStateWorth(checkpoint)) return { pages: 0, isDone: true };
    const path = this.#storePath(node, most, checkpoint.depth);
    if (!path.isDone) return path;
    const { stored } = checkpoint;
    const asked = Math.min(this.#tier.costs.statePages - stored, most - path.pages);
    const end = checkpoint.depth / this.#pool.pageTokens;
    const taken =
      asked === 0 ? 0 : this.#tier.storeState(this.#promptOf(node), end, checkpoint.slot, stored, asked);
    this.#took(taken);
    checkpoint.stored += taken;
    return { pages: path.pages + taken, isDone: checkpoint.stored === this.#tier.costs.statePages };
  }

  /** Stores up to `most` pages of a path, from its beginning, and no token behind the first `limit` ones. */
  #storePath(node: RadixNode, most: number, limit = node.end): Stored {
    let pages = 0;
    for (const at of pathTo(node)) {
      const whole = this.#wholePages(at, limit);
      if (at.stored >= whole) continue;
      if (this.#checkpoints === null && !this.#isWorth(at, whole)) return { pages, isDone: true };
      const asked = Math.min(whole - at.stored, most - pages);
      if (asked === 0) return { pages, isDone: false };
      const first = Math.floor(at.start / this.#pool.pageTokens) + at.stored;
      const taken = this.#tier.store(this.#promptOf(node), first, this.#pagesOf(at, asked));
      at.stored += taken;
      pages += taken;
      this.#took(taken);
      if (taken < asked || at.stored < whole) return { pages, isDone: false };
    }
    return { pages, isDone: true };
  }

  /** Accounts for pages, or pieces of a state, that the tier has taken. */
  #took(pages: number): void {
    this.#savedMs -= pages * this.#tier.costs.storePageMs;
    this.#pagesStored += pages;
    this.#hasNews ||= pages > 0;
  }

  #pagesOf({ pages, stored }: RadixNode, count: number): readonly PageId[] {
    return pages.slice(stored, stored + count);
  }

  /** True if the missing pages of a node are worth storing, taken together. */
  #isWorth(node: RadixNode, whole: number): boolean {
    const { pageTokens } = this.#pool;
    const { loadPageMs, storePageMs } = this.#tier.costs;
    const middle = Math.floor(node.start / pageTokens) + (node.stored + whole - 1) / 2;
    const savedMs = this.#delayed * pageMs(this.#costs, pageTokens, middle * pageTokens) - loadPageMs;
    const chance = node.waiters > 0 ? 1 : Math.min(1, this.#shares.shareOf(node.kind, node.reads));
    return chance * savedMs > storePageMs + WRITE_SHARE * loadPageMs;
  }

  /**
   * True if a checkpoint's state is worth storing, with the pages before it. A reader saves the prefill from the
   * nearest stored state above it.
   */
  #isStateWorth({ node, depth, kind, reads, stored }: Checkpoint): boolean {
    const { pageTokens } = this.#pool;
    const { loadPageMs, storePageMs, statePages } = this.#tier.costs;
    let above = 0;
    let left = statePages - stored;
    for (const at of pathTo(node!)) {
      left += Math.max(0, this.#wholePages(at, depth) - at.stored);
      for (const other of at.checkpoints)
        if (other.depth < depth && other.stored === statePages) above = other.depth;
    }
    const tokens = depth - above;
    const loadMs = (tokens / pageTokens + statePages) * loadPageMs;
    const savedMs = this.#delayed * computeMs(this.#costs, tokens, above) - loadMs;
    const chance = Math.min(1, this.#checkpoints!.chance({ kind, reads }));
    return chance * savedMs > left * (storePageMs + WRITE_SHARE * loadPageMs);
  }

  /** The path that ends with `node`, as the tier gets it; the same object again for the same node. */
  #promptOf(node: RadixNode): PagesOf {
    if (this.#last?.node !== node)
      this.#last = {
        node,
        prompt: { sharing: sharingOfPath(node, this.#pool.pageTokens), tokens: tokensOf(node) },
      };
    return this.#last.prompt;
  }

  /** Number of a node's whole pages within the first `limit` tokens of its path. */
  #wholePages({ start, end }: RadixNode, limit = end): number {
    const { pageTokens } = this.#pool;
    return Math.floor(Math.min(end, limit) / pageTokens) - Math.floor(start / pageTokens);
  }
}

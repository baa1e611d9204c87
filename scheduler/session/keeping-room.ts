import type { NamedPrompt } from "./session-table.ts";

/** Tokens of a session. */
type Held = Omit<NamedPrompt, "names">;

/** Kept sessions leave 1 / `SPARED_PART` of an engine's pages to others. */
const SPARED_PART = 8;

/** Page budget of one engine, which running and kept sessions share. Pages of a common prefix count once. */
export class Room {
  readonly #pageTokens: number;
  /** Most pages that one tenant keeps. */
  readonly #shareMax: number;
  readonly #shares = new Map<string, number>();
  readonly #counted: Held[] = [];
  #left: number;

  /** `tenants`: number of tenants with sessions, which have equal parts. */
  constructor(pages: number, pageTokens: number, tenants: number) {
    this.#pageTokens = pageTokens;
    this.#shareMax = (pages - pages / SPARED_PART) / tenants;
    this.#left = pages;
  }

  /** Counts the pages of a running session. */
  use(held: Held): void {
    this.#left -= this.#pagesOf(held);
    this.#counted.push(held);
  }

  /** Takes pages for a session that is to be kept; false: there are too few. */
  take(held: Held): boolean {
    const pages = this.#pagesOf(held);
    const share = (this.#shares.get(held.tenant) ?? 0) + pages;
    if (pages > this.#left || share > this.#shareMax) return false;
    this.#shares.set(held.tenant, share);
    this.use(held);
    return true;
  }

  #pagesOf({ tenant, salt, adapter, tokens }: Held): number {
    let shared = 0;
    for (const other of this.#counted)
      if (other.tenant === tenant && other.salt === salt && other.adapter === adapter)
        shared = Math.max(shared, tokens.sharedWith(other.tokens));
    return Math.ceil((tokens.length - shared) / this.#pageTokens);
  }
}

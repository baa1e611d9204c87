import type { HashedTokens } from "./hashed-tokens.ts";
import type { Session } from "./session-table.ts";

/** Part of an engine's pages that kept sessions leave to others: 1 / `SPARED_PART`. */
const SPARED_PART = 8;

/** Pages of one engine, as running and kept sessions divide them. Those of a common beginning count once. */
export class Room {
  readonly #pageTokens: number;
  /** Most pages that one tenant keeps. */
  readonly #shareMax: number;
  readonly #shares = new Map<string, number>();
  readonly #counted: { readonly session: Session; readonly tokens: HashedTokens }[] = [];
  #left: number;

  /** `tenants`: number of tenants with sessions, which have equal parts. */
  constructor(pages: number, pageTokens: number, tenants: number) {
    this.#pageTokens = pageTokens;
    this.#shareMax = (pages - pages / SPARED_PART) / tenants;
    this.#left = pages;
  }

  /** Counts the pages of a running session. */
  use(session: Session, tokens: HashedTokens): void {
    this.#left -= this.#pagesOf(session, tokens);
    this.#counted.push({ session, tokens });
  }

  /** Takes pages for a session that is to be kept; false: there are too few. */
  take(session: Session, tokens: HashedTokens): boolean {
    const pages = this.#pagesOf(session, tokens);
    const share = (this.#shares.get(session.tenant) ?? 0) + pages;
    if (pages > this.#left || share > this.#shareMax) return false;
    this.#shares.set(session.tenant, share);
    this.use(session, tokens);
    return true;
  }

  #pagesOf({ tenant, salt }: Session, tokens: HashedTokens): number {
    let shared = 0;
    for (const other of this.#counted) {
      if (other.session.tenant !== tenant || other.session.salt !== salt) continue;
      shared = Math.max(shared, tokens.sharedWith(other.tokens));
    }
    return Math.ceil((tokens.length - shared) / this.#pageTokens);
  }
}

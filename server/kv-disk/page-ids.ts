import type { PagesOf } from "../../scheduler/cache/lower-tier.ts";

/** Id of a stored page: 32 bytes as the characters of a binary string. */
export type StoredId = string;

/** Ids of a prompt's first pages, computed as they are needed. */
interface Chain {
  readonly ids: StoredId[];
  /** Hash from which the next page's id is computed. */
  last: StoredId;
}

/**
 * Ids of pages: SHA-256 of the identity (model, formats and kernels), the cache key and all tokens up to the
 * page's end. Equal ids mean equal contents. Prompts of different keys have different ids, except for public
 * pages. Without the secret, if there is one, nobody can compute an id.
 */
export class PageIds {
  readonly #identity: string;
  readonly #secret: Uint8Array | null;
  readonly pageTokens: number;
  readonly #chains = new WeakMap<PagesOf, Chain>();
  readonly #words: Int32Array<ArrayBuffer>;

  constructor(identity: string, pageTokens: number, secret: Uint8Array | null) {
    this.#identity = identity;
    this.#secret = secret;
    this.pageTokens = pageTokens;
    this.#words = new Int32Array(pageTokens);
  }

  /** Id of the page with this index, all of whose tokens are in the prompt. */
  idOf(prompt: PagesOf, page: number): StoredId {
    let chain = this.#chains.get(prompt);
    if (chain === undefined) {
      chain = { ids: [], last: this.#root(prompt.sharing.publicTokens > 0 ? "public" : "private", prompt) };
      this.#chains.set(prompt, chain);
    }
    while (chain.ids.length <= page) {
      chain.last = this.#next(chain.last, prompt, chain.ids.length);
      chain.ids.push(chain.last);
      if (chain.ids.length * this.pageTokens === prompt.sharing.publicTokens)
        chain.last = this.#root("private", prompt, chain.last);
    }
    return chain.ids[page]!;
  }

  /** Id of a piece of the recurrent state after the prompt's first `end` pages. */
  pieceOf(prompt: PagesOf, end: number, piece: number): StoredId {
    return new Bun.CryptoHasher("sha256")
      .update(Buffer.from(this.idOf(prompt, end - 1), "latin1"))
      .update(`state ${piece}`)
      .digest()
      .toString("latin1");
  }

  #root(kind: "public" | "private", { sharing }: PagesOf, before: StoredId = ""): StoredId {
    const key = kind === "public" ? sharing.publicKey : sharing.key;
    const from = Buffer.from(before, "latin1").toString("hex");
    const hasher =
      this.#secret === null ? new Bun.CryptoHasher("sha256") : new Bun.CryptoHasher("sha256", this.#secret);
    return hasher
      .update(JSON.stringify([kind, this.#identity, key, from]))
      .digest()
      .toString("latin1");
  }

  #next(before: StoredId, { tokens }: PagesOf, page: number): StoredId {
    for (let i = 0; i < this.pageTokens; i += 1) this.#words[i] = tokens[page * this.pageTokens + i]!;
    return new Bun.CryptoHasher("sha256")
      .update(Buffer.from(before, "latin1"))
      .update(this.#words)
      .digest()
      .toString("latin1");
  }
}

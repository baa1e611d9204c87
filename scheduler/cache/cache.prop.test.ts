/** The cache against an oracle that remembers every prefix, and the pages against the rules of ownership. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { assert } from "../../base/assert.ts";
import { runs } from "../../tests/support/property.ts";
import { sharingBeside } from "../../tests/support/sharing.ts";
import type { PageId } from "../core.ts";
import { Cache, type CacheLock } from "./cache.ts";
import { checkCache } from "./integrity.ts";
import { PagePool } from "./page-pool.ts";
import { PrefixWaiter, pathPages } from "./radix-tree.ts";

const PAGE_TOKENS = 3;
/** A text that is public: its beginning is shared under every salt. */
const sharingOf = sharingBeside([0, 1, 1, 0, 1, 0, 0, 1, 1], PAGE_TOKENS);

/** A sequence in the making: what the engine keeps of one, without an engine. */
interface Holder {
  readonly tokens: Int32Array;
  readonly salt: string;
  lock: CacheLock;
  computed: number;
  /** Locked pages, then own ones. */
  readonly table: Int32Array;
  pageCount: number;
}

/**
 * A cache under test with a model beside it: the context of each written slot, and the set of inserted
 * prefixes. A context is text: "0110" is the slot of token 0 after 0, 1, 1.
 */
class Bench {
  readonly pool: PagePool;
  readonly cache: Cache;
  readonly holders: Holder[] = [];
  /** Waiters with the depth in their last callback. */
  readonly waiters = new Map<PrefixWaiter, number>();
  readonly #slots = new Map<string, string>();
  readonly #inserted = new Map<string, Set<string>>([
    ["", new Set()],
    ["other", new Set()],
  ]);
  readonly #insertedPublic = new Set<string>();

  constructor(pages: number) {
    this.pool = new PagePool(pages, PAGE_TOKENS);
    this.cache = new Cache(this.pool);
  }

  /** Longest prefix ever inserted: what an endless cache would find. */
  oracle(tokens: Int32Array, limit: number, salt: string): number {
    let length = 0;
    while (length < limit && this.#prefixes(tokens, length + 1, salt).has(context(tokens, length + 1)))
      length += 1;
    return length;
  }

  /** Set that remembers prefixes of this length. */
  #prefixes(tokens: Int32Array, length: number, salt: string): Set<string> {
    const isPublic = length <= sharingOf(tokens, salt).publicTokens;
    return isPublic ? this.#insertedPublic : this.#inserted.get(salt)!;
  }

  /** Begins a sequence if there is room for it, and computes all of it but nothing is inserted yet. */
  begin(tokens: Int32Array, salt: string): void {
    const sharing = sharingOf(tokens, salt);
    const match = this.cache.match(tokens, tokens.length, sharing);
    const needed = Math.ceil(tokens.length / PAGE_TOKENS) - Math.floor(match.tokens / PAGE_TOKENS);
    const available = this.pool.pagesFree + this.cache.pagesEvictable - match.pagesPinned;
    if (needed > available) return;

    const lock = this.cache.lock(tokens, tokens.length, sharing);
    const isPartial = match.tokens % PAGE_TOKENS !== 0;
    const source = isPartial ? this.cache.lockSource(tokens, match.tokens, sharing) : null;
    expect(this.pool.pagesFree + this.cache.pagesEvictable).toBe(available);
    const table = new Int32Array(Math.ceil(tokens.length / PAGE_TOKENS));
    const locked = pathPages(lock.node);
    table.set(locked);
    this.#reserve(needed);
    for (let i = locked.length; i < table.length; i++) table[i] = this.pool.take();
    if (source !== null) {
      const whole = match.tokens - (match.tokens % PAGE_TOKENS);
      for (let position = whole; position < match.tokens; position++) {
        expect(this.#slots.get(slotName(source.page, position))).toBe(context(tokens, position + 1));
      }
      this.cache.release(source.lock);
    }
    this.#write(tokens, table, lock.node.end);
    this.holders.push({ tokens, salt, lock, computed: tokens.length, table, pageCount: table.length });
    this.checkReadable();
  }

  /** Hands over up to `pages` more of a holder's complete pages. */
  publish(holder: Holder, pages: number): void {
    const locked = holder.lock.node.end / PAGE_TOKENS;
    const end = Math.min(Math.floor(holder.computed / PAGE_TOKENS), locked + pages) * PAGE_TOKENS;
    holder.lock = this.cache.insert(holder.lock, holder.tokens, end, holder.table);
    this.#remember(holder, end);
    expect(holder.lock.node.end).toBe(end);
    expect(pathPages(holder.lock.node)).toEqual([...holder.table.subarray(0, end / PAGE_TOKENS)] as PageId[]);
  }

  end(holder: Holder): void {
    this.cache.insertLast(holder.lock, holder.tokens, holder.computed, holder.table);
    this.#remember(holder, holder.computed);
    this.holders.splice(this.holders.indexOf(holder), 1);
  }

  track(tokens: Int32Array, salt: string): void {
    const waiter: PrefixWaiter = new PrefixWaiter(sharingOf(tokens, salt), tokens, tokens.length - 1, () => {
      this.waiters.set(waiter, waiter.depth);
    });
    this.cache.track(waiter);
    this.waiters.set(waiter, waiter.depth);
  }

  untrack(waiter: PrefixWaiter): void {
    this.cache.untrack(waiter);
    this.waiters.delete(waiter);
  }

  evict(pages: number): void {
    const evictable = this.cache.pagesEvictable;
    const freed = this.cache.evict(pages);
    expect(freed).toBe(Math.min(pages, evictable));
  }

  /** Checks that every match was inserted, and that the pages of each table hold its tokens. */
  check(): void {
    const owned = this.holders.flatMap((holder) => [
      ...holder.table.subarray(holder.lock.node.end / PAGE_TOKENS, holder.pageCount),
    ]) as PageId[];
    const locks = this.holders.map((holder) => holder.lock);
    checkCache(this.pool, this.cache, locks, owned);
    this.checkReadable();
    for (const [waiter, told] of this.waiters) {
      const match = this.cache.match(waiter.tokens, waiter.limit, waiter.sharing);
      const tracked = { tokens: told, usable: waiter.usable, pagesPinned: this.cache.pagesPinnedBy(waiter) };
      expect({ tracked, depth: waiter.depth }).toEqual({ tracked: match, depth: told });
    }
  }

  checkReadable(): void {
    for (const { tokens, table, computed } of this.holders) {
      for (let position = 0; position < computed; position++) {
        const page = table[Math.floor(position / PAGE_TOKENS)]! as PageId;
        expect(this.#slots.get(slotName(page, position))).toBe(context(tokens, position + 1));
      }
    }
  }

  #reserve(pages: number): void {
    if (this.pool.pagesFree < pages) this.cache.evict(pages - this.pool.pagesFree);
    assert(this.pool.pagesFree >= pages, "match told the truth about what can be evicted");
  }

  #write(tokens: Int32Array, table: Int32Array, from: number): void {
    for (let position = from; position < tokens.length; position++) {
      const page = table[Math.floor(position / PAGE_TOKENS)]! as PageId;
      this.#slots.set(slotName(page, position), context(tokens, position + 1));
    }
  }

  #remember({ tokens, salt }: Holder, end: number): void {
    for (let length = 1; length <= end; length++)
      this.#prefixes(tokens, length, salt).add(context(tokens, length));
  }
}

function context(tokens: Int32Array, length: number): string {
  return tokens.subarray(0, length).join("");
}

function slotName(page: PageId, position: number): string {
  return `${page}:${position % PAGE_TOKENS}`;
}

const tokens = fc
  .array(fc.nat({ max: 1 }), { minLength: 1, maxLength: 14, size: "max" })
  .map((list) => Int32Array.from(list));
const salt = fc.constantFrom("", "", "", "other");
const who = fc.nat({ max: 100 });

type Operation =
  | { readonly kind: "begin"; readonly tokens: Int32Array; readonly salt: string }
  | { readonly kind: "publish"; readonly who: number; readonly pages: number }
  | { readonly kind: "end"; readonly who: number }
  | { readonly kind: "follow"; readonly tokens: Int32Array; readonly salt: string }
  | { readonly kind: "unfollow"; readonly who: number }
  | { readonly kind: "evict"; readonly pages: number };

function carryOut(bench: Bench, operation: Operation): void {
  if (operation.kind === "begin") bench.begin(operation.tokens, operation.salt);
  else if (operation.kind === "evict") bench.evict(operation.pages);
  else if (operation.kind === "follow") bench.track(operation.tokens, operation.salt);
  else if (operation.kind === "unfollow") {
    if (bench.waiters.size > 0) bench.untrack([...bench.waiters.keys()][operation.who % bench.waiters.size]!);
  } else if (bench.holders.length > 0) {
    const holder = bench.holders[operation.who % bench.holders.length]!;
    if (operation.kind === "publish") bench.publish(holder, operation.pages);
    else bench.end(holder);
  }
  bench.check();
}

const begins = fc.record({ kind: fc.constant("begin" as const), tokens, salt });
const publishes = fc.record({ kind: fc.constant("publish" as const), who, pages: fc.nat({ max: 3 }) });
const follows = fc.record({ kind: fc.constant("follow" as const), tokens, salt });
const unfollows = fc.record({ kind: fc.constant("unfollow" as const), who });
const ends = fc.record({ kind: fc.constant("end" as const), who });
const evicts = fc.record({ kind: fc.constant("evict" as const), pages: fc.integer({ min: 1, max: 4 }) });

function scripts(...kinds: fc.Arbitrary<Operation>[]): fc.Arbitrary<Operation[]> {
  return fc.array(fc.oneof(...kinds), { maxLength: 60, size: "max" });
}

test("with room for everything, a lookup finds exactly what was inserted under its salt or is public, token by token", () => {
  const rule = fc.property(scripts(begins, publishes, ends), tokens, (script, wanted) => {
    const bench = new Bench(400);
    for (const operation of script) carryOut(bench, operation);
    for (const name of ["", "other"]) {
      const found = bench.cache.match(wanted, wanted.length, sharingOf(wanted, name)).tokens;
      expect(found).toBe(bench.oracle(wanted, wanted.length, name));
    }
  });
  fc.assert(rule, runs(200));
});

test("under pressure: free + cached + owned = all, locked pages keep their contents, what is found was inserted, and waiters are told what a lookup finds", () => {
  const script = scripts(begins, begins, publishes, ends, evicts, follows, unfollows);
  const rule = fc.property(fc.integer({ min: 5, max: 12 }), script, tokens, (pages, steps, wanted) => {
    const bench = new Bench(pages);
    for (const operation of steps) {
      carryOut(bench, operation);
      const match = bench.cache.match(wanted, wanted.length, sharingOf(wanted, ""));
      expect(match.tokens).toBeLessThanOrEqual(bench.oracle(wanted, wanted.length, ""));
    }
    while (bench.holders.length > 0) bench.end(bench.holders[0]!);
    bench.evict(pages);
    expect(bench.pool.pagesFree).toBe(pages);
    bench.check();
    for (const waiter of [...bench.waiters.keys()]) bench.untrack(waiter);
    expect([...bench.cache.nodes()]).toEqual([]);
  });
  fc.assert(rule, runs(400));
});

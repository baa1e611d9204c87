/** The prefix cache by example: lookup, sharing and the order of eviction. */

import { expect, test } from "bun:test";
import { tokensFrom } from "../../simulation/factories.ts";
import { ownSharing } from "../../tests/support/sharing.ts";
import type { PageId } from "../core.ts";
import { Cache } from "./cache.ts";
import { PagePool } from "./page-pool.ts";
import { pathPages } from "./radix-tree.ts";

const PAGE_TOKENS = 16;

function cacheOf(pages: number) {
  const pool = new PagePool(pages, PAGE_TOKENS);
  const cache = new Cache(pool);
  /** Computes a sequence that uses cached tokens, and ends at once. Returns its final page table. */
  const insert = (list: number[], salt = ""): Int32Array => {
    const tokens = Int32Array.from(list);
    const lock = cache.lock(tokens, tokens.length, ownSharing(salt));
    const locked = pathPages(lock.node);
    const count = Math.ceil(tokens.length / PAGE_TOKENS);
    const own = Array.from({ length: count - locked.length }, () => pool.take());
    const table = Int32Array.from([...locked, ...own]);
    cache.insertLast(lock, tokens, tokens.length, table);
    return table;
  };
  const found = (list: number[], salt = ""): number =>
    cache.match(Int32Array.from(list), list.length, ownSharing(salt)).tokens;
  return { pool, cache, insert, found };
}

test("a lookup is exact to the token", () => {
  const { insert, found } = cacheOf(20);
  insert(tokensFrom(0, 40));
  insert([...tokensFrom(0, 21), 900, 901]);
  expect(found([...tokensFrom(0, 39), 7])).toBe(39);
  expect(found([...tokensFrom(0, 21), 900, 7])).toBe(22);
  expect(found([...tokensFrom(0, 21), 7])).toBe(21);
  expect(found([7])).toBe(0);
});

test("equal tokens are kept once: the second sequence's pages are freed", () => {
  const { pool, cache, insert } = cacheOf(20);
  insert(tokensFrom(0, 40));
  expect(cache.pagesHeld).toBe(3);
  insert(tokensFrom(0, 40));
  expect(cache.pagesHeld).toBe(3);
  insert(tokensFrom(0, 33));
  expect([cache.pagesHeld, pool.pagesFree]).toEqual([3, 17]);
});

test("a longer sequence takes the place of the partial page that it continues", () => {
  const { cache, insert } = cacheOf(20);
  insert(tokensFrom(0, 20));
  expect(cache.pagesHeld).toBe(2);
  insert(tokensFrom(0, 50));
  expect(cache.pagesHeld).toBe(4);
});

test("a fork inside of a page gives each branch a page, and the stem none", () => {
  const { cache, insert } = cacheOf(20);
  insert([...tokensFrom(0, 20), ...tokensFrom(100, 12)]);
  insert([...tokensFrom(0, 20), ...tokensFrom(200, 12)]);
  const lists = [...cache.nodes()].map(({ node }) => [node.start, node.end, node.pages.length]);
  expect(lists.sort()).toEqual([
    [0, 0, 0],
    [0, 16, 1], // the second sequence locked this page, and computed from 20 on into its own copy of the next
    [16, 20, 0],
    [20, 32, 1],
    [20, 32, 1],
  ]);
});

test("salts share nothing", () => {
  const { cache, insert, found } = cacheOf(20);
  insert(tokensFrom(0, 32), "a");
  expect(found(tokensFrom(0, 32), "b")).toBe(0);
  insert(tokensFrom(0, 32), "b");
  expect(cache.pagesHeld).toBe(4);
  expect(found(tokensFrom(0, 32), "a")).toBe(32);
});

test("the least recently used goes first, and its tail before its head", () => {
  const { cache, insert, found } = cacheOf(20);
  const [a, b, c] = [tokensFrom(0, 48), tokensFrom(100, 48), tokensFrom(200, 48)];
  for (const list of [a, b, c]) insert(list);
  // A lookup is no use, a lock is.
  found(b);
  cache.release(cache.lock(Int32Array.from(a), 48, ownSharing("")));
  expect(cache.evict(1)).toBe(1);
  expect([found(a), found(b), found(c)]).toEqual([48, 32, 48]);
  expect(cache.evict(3)).toBe(3);
  expect([found(a), found(b), found(c)]).toEqual([48, 0, 32]);
  expect(cache.evict(100)).toBe(5);
  expect([...cache.nodes()]).toEqual([]);
});

test("branches go before their stem, and a stem keeps whole pages only when its last branch has gone", () => {
  const { cache, insert, found } = cacheOf(20);
  insert([...tokensFrom(0, 40), ...tokensFrom(100, 8)]);
  insert([...tokensFrom(0, 40), ...tokensFrom(200, 8)]);
  expect(cache.evict(1)).toBe(1);
  expect(found(tokensFrom(0, 40))).toBe(40);
  expect(cache.evict(1)).toBe(1);
  expect(found(tokensFrom(0, 40))).toBe(32);
  expect(cache.pagesHeld).toBe(2);
});

test("locked pages are not evicted, up to the token where the lock ends", () => {
  const { cache, insert, found } = cacheOf(20);
  const list = tokensFrom(0, 80);
  insert(list);
  const lock = cache.lock(Int32Array.from(list), 40, ownSharing(""));
  expect(lock.node.end).toBe(32);
  expect(cache.pagesEvictable).toBe(3);
  expect(cache.evict(100)).toBe(3);
  expect(found(list)).toBe(32);
  cache.release(lock);
  expect(cache.evict(100)).toBe(2);
});

test("the source of a copy is pinned page by page", () => {
  const { cache, insert } = cacheOf(20);
  const tokens = Int32Array.from(tokensFrom(0, 80));
  const table = insert(tokensFrom(0, 80));
  const source = cache.lockSource(tokens, 40, ownSharing(""));
  expect(source.page).toBe(table[2]! as PageId);
  expect(cache.pagesEvictable).toBe(2);
  cache.release(source.lock);
  expect(cache.pagesEvictable).toBe(5);
});

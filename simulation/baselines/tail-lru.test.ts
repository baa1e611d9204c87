/** T-LRU by example: of each conversation it first evicts the end that is cheap to compute again. */

import { expect, test } from "bun:test";
import { Cache } from "../../scheduler/cache/cache.ts";
import { PagePool } from "../../scheduler/cache/page-pool.ts";
import { pathPages } from "../../scheduler/cache/radix-tree.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { ownSharing } from "../../tests/support/sharing.ts";
import { tokensFrom } from "../factories.ts";
import { sparedTokens, TailLru } from "./tail-lru.ts";

const PAGE_TOKENS = 16;

function conversations(spared: number) {
  const pool = new PagePool(64, PAGE_TOKENS);
  const cache = new Cache(pool, null, null, new TailLru(spared));
  const insert = (list: number[]): void => {
    const tokens = Int32Array.from(list);
    const lock = cache.lock(tokens, tokens.length, ownSharing(""));
    const locked = pathPages(lock.node);
    const own = Array.from({ length: Math.ceil(tokens.length / PAGE_TOKENS) - locked.length }, () =>
      pool.take(),
    );
    cache.insertLast(lock, tokens, tokens.length, Int32Array.from([...locked, ...own]));
  };
  const found = (list: number[]): number =>
    cache.match(Int32Array.from(list), list.length, ownSharing("")).tokens;
  return { cache, insert, found };
}

const [older, newer] = [tokensFrom(0, 160), tokensFrom(300, 160)];

test("ends that the next turn can compute in time go first, then the least recently used", () => {
  const { cache, insert, found } = conversations(32);
  insert(older);
  insert(newer);
  cache.evict(2);
  expect([found(older), found(newer)]).toEqual([128, 160]);
  cache.evict(2);
  expect([found(older), found(newer)]).toEqual([128, 128]);
  cache.evict(3);
  expect([found(older), found(newer)]).toEqual([80, 128]);
});

test("the end of a conversation counts where it was, also after its last turn is evicted", () => {
  const { cache, insert, found } = conversations(64);
  insert(older);
  const longer = [...older, ...tokensFrom(500, 32)];
  insert(longer);
  insert(newer);
  cache.evict(4);
  expect([found(longer), found(newer)]).toEqual([128, 160]);
  cache.evict(4);
  expect([found(longer), found(newer)]).toEqual([128, 96]);
});

test("without spare tokens it is plain LRU", () => {
  const { cache, insert, found } = conversations(0);
  insert(older);
  insert(newer);
  cache.evict(5);
  expect([found(older), found(newer)]).toEqual([80, 160]);
});

test("spare tokens are those that the target has time for, less the next turn's", () => {
  expect(sparedTokens(linearCost(10, 0.1, 1))).toBeCloseTo(1900 - 256, -1);
  expect(sparedTokens(linearCost(300, 0.1, 1))).toBe(0);
});

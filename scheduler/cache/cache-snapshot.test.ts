/** Snapshots of the prefix cache, for people. */
import { expect, test } from "bun:test";
import { tokensFrom } from "../../simulation/factories.ts";
import { ownSharing } from "../../tests/support/sharing.ts";
import { Cache } from "./cache.ts";
import { snapshotOf } from "./cache-snapshot.ts";
import { PagePool } from "./page-pool.ts";
import { pathPages } from "./radix-tree.ts";

const PAGE_TOKENS = 16;

function cacheOf(pages: number) {
  const pool = new PagePool(pages, PAGE_TOKENS);
  const cache = new Cache(pool);
  const insert = (list: number[]): void => {
    const tokens = Int32Array.from(list);
    const lock = cache.lock(tokens, tokens.length, ownSharing(""));
    const locked = pathPages(lock.node);
    const own = Array.from({ length: Math.ceil(tokens.length / PAGE_TOKENS) - locked.length }, () =>
      pool.take(),
    );
    cache.insertLast(lock, tokens, tokens.length, Int32Array.from([...locked, ...own]));
  };
  return { cache, insert };
}

test("a snapshot lists parents first, with pages below, locks and ages", () => {
  const { cache, insert } = cacheOf(40);
  insert([...tokensFrom(0, 32), ...tokensFrom(100, 64)]);
  insert([...tokensFrom(0, 32), ...tokensFrom(200, 32)]);
  const reader = cache.lock(
    Int32Array.from([...tokensFrom(0, 32), ...tokensFrom(200, 32)]),
    64,
    ownSharing(""),
  );
  const { nodesTotal, pagesTotal, nodes } = snapshotOf(cache, 10);
  expect([nodesTotal, pagesTotal]).toEqual([4, 8]);
  const shapes = nodes.map(([, parent, start, end, pages, below, , locks, , age]) => [
    parent,
    start,
    end,
    pages,
    below,
    locks,
    age,
  ]);
  expect(shapes).toEqual([
    [-1, 0, 0, 0, 8, 1, -1],
    [0, 0, 32, 2, 8, 1, -1],
    [1, 32, 96, 4, 4, 0, 0],
    [1, 32, 64, 2, 2, 1, -1],
  ]);
  cache.release(reader);
  expect(
    snapshotOf(cache, 10)
      .nodes.map(([, , , , , , , , , age]) => age)
      .filter((age) => age >= 0).length,
  ).toBe(3);
});

test("the heaviest nodes are listed, and keep their ids while others come", () => {
  const { cache, insert } = cacheOf(60);
  insert(tokensFrom(0, 64));
  const before = snapshotOf(cache, 2).nodes;
  insert(tokensFrom(1000, 16));
  insert(tokensFrom(2000, 32));
  const after = snapshotOf(cache, 2);
  expect(after.nodes.map(([id]) => id)).toEqual(before.map(([id]) => id));
  expect([after.nodesTotal, after.nodes.length]).toEqual([4, 2]);
  const ids = snapshotOf(cache, 10).nodes.map(([id]) => id);
  expect(new Set(ids).size).toBe(4);
});

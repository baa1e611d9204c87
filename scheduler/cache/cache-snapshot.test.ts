/** Snapshots of the prefix cache, for people. */
import { expect, test } from "bun:test";
import { tokensFrom } from "../../simulation/factories.ts";
import { ownSharing, sharingBeside } from "../../tests/support/sharing.ts";
import { unknownCost } from "../cost/linear.ts";
import { Cache } from "./cache.ts";
import { type SnapshotRequest, snapshotOf } from "./cache-snapshot.ts";
import { PagePool } from "./page-pool.ts";
import { pathPages } from "./radix-tree.ts";

const PAGE_TOKENS = 16;
const PUBLIC: readonly number[] = Array(32).fill(7);
const sharingOf = sharingBeside(PUBLIC, PAGE_TOKENS);

const all = (nodesMax: number): SnapshotRequest => ({ nodesMax, textTokens: 0, owner: null });
const own = (owner: string): SnapshotRequest => ({ nodesMax: 100, textTokens: 0, owner });

function cacheOf(pages: number) {
  const pool = new PagePool(pages, PAGE_TOKENS);
  const cache = new Cache(pool);
  const insert = (list: number[], salt = "", sharing = sharingOf): void => {
    const tokens = Int32Array.from(list);
    const lock = cache.lock(tokens, tokens.length, sharing(tokens, salt));
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
  const { nodesTotal, pagesTotal, nodes } = snapshotOf(cache, all(10), unknownCost);
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
    snapshotOf(cache, all(10), unknownCost)
      .nodes.map(([, , , , , , , , , age]) => age)
      .filter((age) => age >= 0).length,
  ).toBe(3);
});

test("the heaviest nodes are listed, and keep their ids while others come", () => {
  const { cache, insert } = cacheOf(60);
  insert(tokensFrom(0, 64));
  const before = snapshotOf(cache, all(2), unknownCost).nodes;
  insert(tokensFrom(1000, 16));
  insert(tokensFrom(2000, 32));
  const after = snapshotOf(cache, all(2), unknownCost);
  expect(after.nodes.map(([id]) => id)).toEqual(before.map(([id]) => id));
  expect([after.nodesTotal, after.nodes.length]).toEqual([4, 2]);
  const ids = snapshotOf(cache, all(10), unknownCost).nodes.map(([id]) => id);
  expect(new Set(ids).size).toBe(4);
});

test("a snapshot tells of the last evictions: of whom, for whom, and why", () => {
  const { cache, insert } = cacheOf(8);
  insert([...tokensFrom(0, 32), ...tokensFrom(100, 64)]);
  insert(tokensFrom(300, 32));
  expect(cache.evict(1, "0:other")).toBe(1);
  expect(cache.evict(6, "0:own")).toBe(6);
  const { evictions } = snapshotOf(cache, all(10), unknownCost);
  const shown = evictions.map(({ number, reason, by, start, end, pages, pagesEvictable }) => {
    return [number, reason, by, start, end, pages, pagesEvictable];
  });
  expect(shown).toEqual([
    [2, "least_recent", "0:own", 16, 32, 1, 2],
    [1, "least_recent", "0:own", 0, 80, 5, 7],
    [0, "least_recent", "0:other", 80, 96, 1, 8],
  ]);
  expect(evictions.every(({ recomputeMs }) => recomputeMs > 0)).toBe(true);
});

test("a snapshot of an owner is the same whatever others do, and has none of their nodes", () => {
  const mine = (insert: ReturnType<typeof cacheOf>["insert"]): void => {
    insert([...PUBLIC, ...tokensFrom(300, 40)], "ann:");
    insert([...tokensFrom(0, 32), ...tokensFrom(100, 64)], "ann:");
    insert([...tokensFrom(0, 32), ...tokensFrom(200, 32)], "ann:");
    insert(tokensFrom(0, 48), "ann:salted");
  };
  const alone = cacheOf(200);
  mine(alone.insert);
  const beside = cacheOf(200);
  for (const salt of ["bob:", "bob:ann:", ""]) {
    beside.insert([...tokensFrom(0, 32), ...tokensFrom(100, 64)], salt);
    beside.insert([...PUBLIC.slice(0, 16), ...tokensFrom(400, 16)], salt);
  }
  mine(beside.insert);
  for (const salt of ["bob:", "bob:ann:", ""]) {
    beside.insert([...tokensFrom(0, 32), ...tokensFrom(200, 32)], salt);
    beside.insert([...PUBLIC, ...tokensFrom(300, 40)], salt);
  }
  beside.cache.evict(1, "0:ann:");

  const seen = snapshotOf(beside.cache, own("ann:"), unknownCost);
  expect(seen).toEqual(snapshotOf(alone.cache, own("ann:"), unknownCost));
  const shapes = seen.nodes.map(([, parent, start, end, pages, below]) => [parent, start, end, pages, below]);
  expect(shapes).toEqual([
    [-1, 0, 0, 0, 8],
    [0, 0, 32, 2, 8],
    [1, 32, 96, 4, 4],
    [-1, 32, 72, 3, 3],
    [-1, 0, 0, 0, 3],
    [4, 0, 48, 3, 3],
    [1, 32, 64, 2, 2],
  ]);
  expect([seen.nodesTotal, seen.pagesTotal, seen.evictions]).toEqual([7, 14, []]);
  expect(snapshotOf(beside.cache, own("eve:"), unknownCost).nodes).toEqual([]);
});

test("nodes of an owner behind different public texts have different ids, which others do not change", () => {
  const other = [...PUBLIC.slice(0, 16), ...Array<number>(16).fill(8)];
  const sharingOther = sharingBeside(other, PAGE_TOKENS);
  const { cache, insert } = cacheOf(100);
  insert([...PUBLIC, ...tokensFrom(300, 16)], "ann:");
  const [first] = snapshotOf(cache, own("ann:"), unknownCost).nodes;
  insert([...other, ...tokensFrom(300, 16)], "ann:", sharingOther);
  insert([...PUBLIC.slice(0, 24), ...tokensFrom(500, 16)], "bob:");
  const ids = snapshotOf(cache, own("ann:"), unknownCost).nodes.map(([id]) => id);
  expect(ids).toHaveLength(2);
  expect(new Set([...ids, first![0]]).size).toBe(2);
});

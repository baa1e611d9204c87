/** The index of the engines' cached pages: its removals, and its view of evictable pages. */

import { expect, test } from "bun:test";
import type { KvEvent } from "../cache/kv-event-log.ts";
import { checkIndex } from "./integrity.ts";
import { PrefixIndex } from "./prefix-index.ts";

const WINDOW_MS = 1000;

/** Index of two engines, and a function that reports their events. */
function rig(): {
  readonly index: PrefixIndex;
  readonly tell: (engine: number, kind: KvEvent["kind"], path: Float64Array, from?: number) => void;
} {
  const index = new PrefixIndex(2, WINDOW_MS);
  const numbers = [0, 0];
  return {
    index,
    tell: (engine, kind, path, from = 0) => {
      const number = numbers[engine]!;
      numbers[engine] = number + 1;
      index.apply(engine, { epoch: 0, number, isWhole: false, events: [{ kind, path, from }] });
      checkIndex(index, 2);
    },
  };
}

const path = (...hashes: number[]): Float64Array => Float64Array.from(hashes);

test("pages at the end of a branch go with the last engine that had them", () => {
  const { index, tell } = rig();
  tell(0, "insert", path(1, 2, 3, 4));
  tell(1, "insert", path(1, 2, 3, 4));
  tell(0, "evict", path(1, 2, 3, 4), 1);
  expect(index.size.pages).toBe(4);
  tell(1, "evict", path(1, 2, 3, 4), 2);
  expect(index.size.pages).toBe(2);
  tell(1, "evict", path(1, 2), 0);
  expect(index.size.pages).toBe(1);
  tell(0, "evict", path(1), 0);
  expect(index.size).toEqual({ pages: 0, nodes: 0 });
});

test("what was evicted does not stay behind a prompt that diverges before it", () => {
  const { index, tell } = rig();
  tell(0, "insert", path(1, 2, 3, 4));
  tell(0, "evict", path(1, 2, 3, 4), 2);
  const end = index.addInFlight(path(1, 9), 1, 0)!;
  checkIndex(index, 2);
  expect(index.size.pages).toBe(3);
  index.release(end, 1, false);
  checkIndex(index, 2);
  expect(index.size.pages).toBe(2);
});

test("what a sequence will read or reads is not evicted, nor what one that is to be placed would find", () => {
  const { index, tell } = rig();
  const pagesEvicted = (): number => index.evictionMs(0, 100, 1, 0, (pages) => pages);
  tell(0, "insert", path(1, 2, 3, 4));
  tell(0, "insert", path(1, 2, 8));
  // Hits once each: the stem of two pages, and its branches of two and one.
  const [long, short] = [index.addInFlight(path(1, 2, 3, 4), 0, 0)!, index.addInFlight(path(1, 2, 8), 0, 0)!];
  expect(pagesEvicted()).toBe(0);
  index.settle(long, 0);
  index.settle(short, 0);
  expect(pagesEvicted()).toBe(0);
  index.release(long, 0, true);
  expect(pagesEvicted()).toBe(2);
  index.release(short, 0, true);
  expect(pagesEvicted()).toBe(2 + 1 + 2 * 2);
  index.match(path(1, 2, 8, 9), new Int32Array(2), new Int32Array(2));
  expect(pagesEvicted()).toBe(2);
});

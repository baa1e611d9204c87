/** Hashes of pages, and sums over windows. */

import { expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { WindowSum } from "../fleet/engine-view.ts";
import { hashPages, keyHash } from "./page-hash.ts";

test("a page's hash is of everything before, and can be gone on from", () => {
  const tokens = Int32Array.from({ length: 64 }, (_, i) => i * i);
  const whole = hashPages(tokens, 0, 4, 16, keyHash(""));
  const head = hashPages(tokens, 0, 2, 16, keyHash(""));
  expect([...head, ...hashPages(tokens, 2, 4, 16, head[1]!)]).toEqual([...whole]);
  const other = tokens.slice();
  other[5] = 1000;
  const changed = hashPages(other, 0, 4, 16, keyHash(""));
  whole.forEach((hash, page) => {
    expect(changed[page]).not.toBe(hash);
  });
  expect(hashPages(tokens, 0, 0, 16, keyHash(""))).toHaveLength(0);
  expect([...hashPages(tokens, 0, 4, 16, keyHash("salt"))]).not.toEqual([...whole]);
});

test("hashes are exact integers, and pages that differ in one or two tokens have different ones", () => {
  const hashes = new Set<number>();
  const contents = new Set<string>();
  const random = new SeededRandom(3);
  for (let i = 0; i < 20_000; i++) {
    const tokens = new Int32Array(16).fill(7);
    tokens[random.below(16)] = random.below(200_000);
    tokens[random.below(16)] = 1 << random.below(18);
    contents.add(tokens.join());
    hashes.add(hashPages(tokens, 0, 1, 16, keyHash(""))[0]!);
  }
  expect(hashes.size).toBe(contents.size);
  expect([...hashes].every(Number.isSafeInteger)).toBe(true);
});

test("a sum over a window fades with the stretch before", () => {
  const sum = new WindowSum(1000);
  sum.add(10, 200);
  sum.add(20, 900);
  expect(sum.at(999)).toBe(30);
  expect(sum.at(1500)).toBe(15);
  sum.add(8, 1500);
  expect(sum.at(1750)).toBe(8 + 30 / 4);
  expect(sum.at(2500)).toBe(4);
  expect(sum.at(90_000)).toBe(0);
});

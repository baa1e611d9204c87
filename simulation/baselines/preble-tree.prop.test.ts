/** Global tree compared with a plain list of each GPU's cached and evicted pages. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { type PrebleNode, PrebleTree } from "./preble-tree.ts";

const GPUS = 2;

/** Pages of a prompt over a small alphabet; each hash covers all pages before it. */
const pathArbitrary = fc.array(fc.integer({ min: 1, max: 2 }), { maxLength: 6 }).map((digits) => {
  let hash = 0;
  return Float64Array.from(digits, (digit) => (hash = 10 * hash + digit));
});

const actionArbitrary = fc.record({
  kind: fc.constantFrom("insert", "evict", "cache", "clear", "expire"),
  path: pathArbitrary,
  gpu: fc.integer({ min: 0, max: GPUS - 1 }),
  from: fc.nat(5),
});

test("the tree knows what is cached where, how often it was asked for, and keeps nothing else", () => {
  fc.assert(
    fc.property(fc.array(actionArbitrary, { maxLength: 40 }), (actions) => {
      const tree = new PrebleTree(GPUS);
      /** Cached page hashes, by GPU. */
      const cached = Array.from({ length: GPUS }, () => new Set<number>());
      const open: { end: PrebleNode; gpu: number; path: Float64Array }[] = [];
      for (const { kind, path, gpu, from } of actions) {
        if (kind === "insert") {
          const end = tree.insert(path, gpu, 7);
          if (end !== null) open.push({ end, gpu, path });
        } else if (kind === "cache") tree.cache(path, gpu);
        else if (kind === "evict") {
          const gone = path[from];
          if (gone === undefined) continue;
          tree.evict(path, from, gpu);
          for (const page of [...cached[gpu]!]) if (isBelow(page, gone)) cached[gpu]!.delete(page);
        } else if (kind === "clear") {
          tree.clear(gpu);
          cached[gpu]!.clear();
        } else {
          const first = open.shift();
          if (first !== undefined) tree.expire(first.end, first.gpu, 7, false);
        }
        if (kind === "insert" || kind === "cache") for (const page of path) cached[gpu]!.add(page);
        for (let other = 0; other < GPUS; other++) {
          const held = [...path].findIndex((page) => !cached[other]!.has(page));
          expect(tree.match(path).found[other]).toBe(held === -1 ? path.length : held);
          expect(tree.pagesOn(other)).toBe(cached[other]!.size);
          const listed = [...tree.leastRecent(other)].flatMap(({ hashes }) => [...hashes]);
          expect(listed.sort()).toEqual([...cached[other]!].sort());
        }
      }
      for (const { end, gpu } of open) tree.expire(end, gpu, 7, false);
      for (let gpu = 0; gpu < GPUS; gpu++) tree.clear(gpu);
      for (const { path } of actions) expect(tree.match(path).nodes).toEqual([]);
    }),
  );
});

/** True if a page equals or follows another on its path. */
function isBelow(page: number, above: number): boolean {
  return String(page).startsWith(String(above));
}

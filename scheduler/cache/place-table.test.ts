import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { type PageKey, PlaceTable } from "./place-table.ts";

/** A table with prompts whose pages are "a0", "a1" …, as far as there are places. */
function tableOf(places: number, ...prompts: readonly (readonly PageKey[])[]): PlaceTable {
  const table = new PlaceTable(places);
  for (const prompt of prompts) add(table, prompt);
  return table;
}

function add(table: PlaceTable, prompt: readonly PageKey[]): void {
  for (const [index, key] of prompt.entries()) {
    if (table.knows(key)) continue;
    if (table.take(key, prompt[index - 1] ?? null) === null) return;
    table.ready(key);
  }
}

const a = ["a0", "a1", "a2"];
const b = ["b0", "b1", "b2"];

test("the least recently used prompt is evicted from its end", () => {
  const table = tableOf(6, a, b);
  table.use(a);
  for (const [index, left] of [["b0", "b1"], ["b0"], []].entries()) {
    add(table, [`c${index}`]);
    expect(b.filter((key) => table.knows(key))).toEqual(left);
    expect(a.every((key) => table.knows(key))).toBe(true);
  }
  expect(table.droppedTotal).toBe(3);
});

test("a prefix that prompts share stays as long as one of them", () => {
  const table = tableOf(5, ["s0", "s1", "a"], ["s0", "s1", "b", "b1"]);
  table.use(["s0", "s1", "b", "b1"]);
  add(table, ["x"]);
  expect(["s0", "s1", "a", "b", "b1"].filter((key) => table.knows(key))).toEqual(["s0", "s1", "b", "b1"]);
});

test("a page that a copy reads, or that is still being copied, is not evicted", () => {
  const table = tableOf(2, ["a"]);
  table.hold("a");
  expect(table.take("b", null)).not.toBeNull();
  expect(table.find("b")).toBeNull();
  expect(table.take("c", null)).toBeNull();
  table.release("a");
  expect(table.take("c", null)).not.toBeNull();
  expect([table.knows("a"), table.knows("b")]).toEqual([false, true]);
  table.drop("b");
  expect(table.take("d", "b")).not.toBeNull();
});

test("no two contents have one place, and no prompt has a gap", () => {
  const letter = fc.constantFrom("0", "1");
  // Each prompt is a path of a tree, so that its keys are the prompts before it.
  const prompts = fc.array(fc.array(letter, { minLength: 1, maxLength: 6 }), { maxLength: 40 });
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 12 }), prompts, (places, all) => {
      const table = new PlaceTable(places);
      const seen = new Set<string>();
      for (const [turn, letters] of all.entries()) {
        const keys = letters.map((_, index) => letters.slice(0, index + 1).join(""));
        for (const key of keys) seen.add(key);
        if (turn % 2 === 0) table.use(keys);
        else add(table, keys);
        const there = [...seen].filter((key) => table.knows(key));
        expect(new Set(there.map((key) => table.find(key))).size).toBe(there.length);
        expect(there.length).toBe(table.size);
        expect(there.length).toBeLessThanOrEqual(places);
        for (const key of there) if (key.length > 1) expect(table.knows(key.slice(0, -1))).toBe(true);
      }
    }),
    runs(200),
  );
});

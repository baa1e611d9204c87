import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { jsonResponse, jsonText, LazyList } from "./slices.ts";

test("whatever JSON holds is written as JSON.stringify does", async () => {
  const lists = fc.oneof(
    fc.jsonValue({ maxDepth: 4 }),
    fc.record({ a: fc.constant(undefined), b: fc.array(fc.integer()), c: fc.array(fc.constant(null)) }),
  );
  await fc.assert(
    fc.asyncProperty(fc.dictionary(fc.string(), lists), async (value) => {
      expect(await (await jsonResponse(value)).text()).toBe(JSON.stringify(value));
      expect(await jsonText(value)).toBe(JSON.stringify(value));
    }),
    runs(300),
  );
});

test("lazy lists are lists, also in what is long, whose length is told", async () => {
  const items = Array.from({ length: 20_000 }, (_, index) => index);
  const lazy = new LazyList(items, (item, index) => ({ item, index, text: "é" }));
  const value = { list: lazy, none: new LazyList([], () => 0), ids: items, nested: [{ lazy }] };
  const plain = {
    list: items.map((item, index) => ({ item, index, text: "é" })),
    none: [],
    ids: items,
    nested: [{ lazy: items.map((item, index) => ({ item, index, text: "é" })) }],
  };
  const response = await jsonResponse(value);
  const bytes = await response.bytes();
  expect(JSON.parse(new TextDecoder().decode(bytes))).toEqual(plain);
  expect(response.headers.get("content-length")).toBe(String(bytes.length));
  expect(JSON.parse(JSON.stringify(value))).toEqual(plain);
  expect(JSON.parse(await jsonText(value))).toEqual(plain);
});

test("others have their turn while a long list is written", async () => {
  let turns = 0;
  const ticking = setInterval(() => turns++, 0);
  const items = Array.from({ length: 200_000 }, (_, index) => index);
  await jsonResponse({ list: new LazyList(items, (item) => ({ item, text: "some text" })) });
  clearInterval(ticking);
  expect(turns).toBeGreaterThan(0);
});

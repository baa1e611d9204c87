import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { Lists } from "./lists.ts";

const number = fc.constantFrom(-1, 0, 1, 2, 255, 2 ** 31, 2 ** 40, 2 ** 40 + 1, Number.POSITIVE_INFINITY);

test("equal lists have equal numbers, in the order in which they are first met, and keep what is in them", () => {
  fc.assert(
    fc.property(fc.array(fc.array(number, { maxLength: 6 }), { maxLength: 300 }), (given) => {
      const lists = new Lists();
      const known: string[] = [];
      for (const list of given) {
        const text = list.join();
        if (!known.includes(text)) known.push(text);
        // Numbers beyond `length` are ignored.
        expect(lists.numberOf([...list, 7], list.length)).toBe(known.indexOf(text));
        expect(lists.size).toBe(known.length);
      }
      for (const list of given) {
        const found = lists.numberOf(list);
        expect(lists.lengthOf(found)).toBe(list.length);
        expect(lists.listOf(found)).toEqual(list);
        expect(list.map((_, index) => lists.at(found, index))).toEqual(list);
      }
    }),
    runs(100),
  );
});

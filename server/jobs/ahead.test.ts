import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { ahead } from "./ahead.ts";

test("results come in order of the items, whichever is done first, and no more are under way than is enough", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(5)), fc.integer({ min: 1, max: 4 }), async (turns, most) => {
      let underWay = 0;
      let atMost = 0;
      const start = async (item: number): Promise<number> => {
        underWay += 1;
        atMost = Math.max(atMost, underWay);
        for (let turn = 0; turn < turns[item]!; turn++) await Promise.resolve();
        underWay -= 1;
        return 10 * item;
      };
      const given: (readonly [number, number])[] = [];
      const items = turns.map((_, index) => index);
      for await (const one of ahead(items, start, ({ length }) => length >= most)) given.push(one);
      expect(given).toEqual(items.map((item) => [item, 10 * item]));
      expect(atMost).toBeLessThanOrEqual(most);
    }),
    runs(100),
  );
});

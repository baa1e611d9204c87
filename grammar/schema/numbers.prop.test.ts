import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { Regexes } from "../regex/regexes.ts";
import { Numbers } from "./numbers.ts";

const value = fc.oneof(
  fc.integer({ min: -1200, max: 1200 }),
  fc.integer({ min: -20_000, max: 20_000 }).map((hundredths) => hundredths / 100),
  fc.constantFrom(0, 1, -1, 0.5, 1e21, 1e-7, 123456789.125, -9.99),
);
const matches = (regexes: Regexes, regex: ReturnType<Numbers["equal"]>, text: string): boolean =>
  regexes.matches(regex, new TextEncoder().encode(text));

test("bounds hold for exactly the numbers that obey them, however many zeros are at their end", () => {
  const regexes = new Regexes();
  const numbers = new Numbers(regexes);
  fc.assert(
    fc.property(
      value,
      value,
      fc.boolean(),
      fc.integer({ min: 0, max: 2 }),
      (bound, given, isExclusive, zeros) => {
        const written = new TextDecoder().decode(numbers.textOf(given));
        const text = written.includes(".")
          ? written + "0".repeat(zeros)
          : written + (zeros === 0 ? "" : `.${"0".repeat(zeros)}`);
        expect(matches(regexes, numbers.all, text)).toBe(true);
        const { atLeast, atMost } = {
          atLeast: numbers.atLeast(bound, isExclusive),
          atMost: numbers.atMost(bound, isExclusive),
        };
        expect([text, matches(regexes, atLeast, text)]).toEqual([
          text,
          isExclusive ? given > bound : given >= bound,
        ]);
        expect([text, matches(regexes, atMost, text)]).toEqual([
          text,
          isExclusive ? given < bound : given <= bound,
        ]);
        expect(matches(regexes, numbers.equal(bound), text)).toBe(given === bound);
        expect(matches(regexes, numbers.integers, text)).toBe(Number.isInteger(given));
      },
    ),
    runs(300),
  );
});

test("multiples are counted by their digits", () => {
  const regexes = new Regexes();
  const numbers = new Numbers(regexes);
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 60 }),
      fc.integer({ min: -9000, max: 9000 }),
      fc.constantFrom(1, 10, 100),
      (step, count, scale) => {
        const regex = numbers.multipleOf(step / scale);
        const text = new TextDecoder().decode(numbers.textOf(count / scale));
        expect([step / scale, text, matches(regexes, regex, text)]).toEqual([
          step / scale,
          text,
          count % step === 0,
        ]);
      },
    ),
    runs(200),
  );
  expect(() => numbers.multipleOf(0.123456789)).toThrow("too many digits");
});

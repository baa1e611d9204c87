import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { compilePattern } from "./pattern.ts";
import { type Regex, Regexes } from "./regexes.ts";
import { allCharacters, jsonEncoding, plainEncoding } from "./text.ts";

const piece = fc.constantFrom(
  ...[
    "a",
    "b",
    "[ab]",
    "[^a]",
    "\\d",
    "\\s",
    "\\S+",
    "é",
    ".*",
    "a?",
    "(?:ab)*",
    "(?:abc){2}",
    "(?:\\S+\\s+){0,3}",
    "b{2,4}",
  ],
  ...["(?:aa|bbbb)*", "\\n", '"', "(?:a|€)+"],
);
const pattern = fc
  .tuple(
    fc.constantFrom("", "^", "^(?!a)"),
    fc.array(piece, { minLength: 1, maxLength: 3 }),
    fc.constantFrom("", "$"),
  )
  .map(([start, pieces, end]) => start + pieces.join("") + end);

test("a pattern with a length is empty where it is with the length spelled out, at every place of a text", () => {
  const lengths = fc.tuple(fc.nat(6), fc.nat(4));
  fc.assert(
    fc.property(
      pattern,
      pattern,
      lengths,
      fc.array(fc.nat(255), { maxLength: 6 }),
      (one, two, [min, more], bytes) => {
        const regexes = new Regexes();
        for (const encoding of [plainEncoding(regexes), jsonEncoding(regexes)]) {
          const character = encoding.oneOf(allCharacters);
          const patterns = [one, two].map((source) => compilePattern(regexes, source, encoding, "anywhere"));
          const times = (count: number): Regex => regexes.cat(...Array<Regex>(count).fill(character));
          const spelled = regexes.alt(Array.from({ length: more + 1 }, (_, index) => times(min + index)));
          let [counted, plain] = [regexes.repeat(character, min, min + more), spelled].map((length) =>
            regexes.and([...patterns, length]),
          ) as [Regex, Regex];
          for (const byte of [null, ...bytes]) {
            if (byte !== null) {
              // Picks a byte of any class.
              const { representatives } = regexes.partitionOf(plain);
              const next = representatives[byte % representatives.length]!;
              counted = regexes.derivative(counted, next);
              plain = regexes.derivative(plain, next);
            }
            expect(regexes.isEmpty(counted)).toBe(regexes.isEmpty(plain));
          }
        }
      },
    ),
    runs(100),
  );
});

test("without a greatest length, and with great ones, no search is needed", () => {
  const regexes = new Regexes();
  const encoding = jsonEncoding(regexes);
  const words = compilePattern(regexes, "^(?:\\S+\\s+){0,39}\\S+$", encoding, "anywhere");
  const even = compilePattern(regexes, "^(?:aa)*$", encoding, "anywhere");
  const length = (min: number, max: number): Regex => regexes.repeat(encoding.oneOf(allCharacters), min, max);
  const before = regexes.size;
  for (const [pattern, min, max, isEmpty] of [
    [words, 200, 5000, false],
    [words, 0, 1, false],
    [words, 3000, Number.POSITIVE_INFINITY, false],
    [even, 301, 301, true],
    [even, 301, 302, false],
    [even, 7, Number.POSITIVE_INFINITY, false],
  ] as const) {
    expect([min, max, regexes.isEmpty(regexes.and([pattern, length(min, max)]))]).toEqual([
      min,
      max,
      isEmpty,
    ]);
  }
  expect(regexes.size - before).toBeLessThan(10_000);
});

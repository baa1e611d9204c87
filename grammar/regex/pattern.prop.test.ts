import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { Budget } from "../error.ts";
import { compilePattern } from "./pattern.ts";
import { type Regex, Regexes } from "./regexes.ts";
import { allCharacters, jsonEncoding, plainEncoding } from "./text.ts";

/** Patterns over few characters, some of several bytes and some that JSON escapes. */
const atom = fc.constantFrom(
  ...[
    "a",
    "b",
    "é",
    "€",
    "😀",
    "\\n",
    '"',
    "\\\\",
    "[ab]",
    "[^a]",
    "[b-é]",
    "[\\d\\-a]",
    "\\w",
    "\\S",
    ".",
    "\\u00e9",
  ],
  ...["\\u{1F600}", "\\p{L}", "\\x61"],
);
const { source } = fc.letrec<{ source: string; sequence: string; piece: string }>((tie) => ({
  source: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    tie("sequence"),
    fc.tuple(tie("sequence"), tie("source")).map(([a, b]) => `${a}|${b}`),
  ),
  sequence: fc.array(tie("piece"), { maxLength: 4 }).map((pieces) => pieces.join("")),
  piece: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    atom,
    fc.tuple(atom, fc.constantFrom("*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?")).map(([a, b]) => a + b),
    fc.tuple(tie("source"), fc.constantFrom("", "*", "?", "{1,2}")).map(([a, b]) => `(?:${a})${b}`),
  ),
}));
const anchored = fc
  .tuple(fc.constantFrom("", "^", "^(?=.*a)", "^(?!b)"), source, fc.constantFrom("", "$"))
  .map(([start, middle, end]) => (start + end === "" ? middle : `${start}(?:${middle})${end}`));
const text = fc.array(fc.constantFrom("a", "b", "é", "€", "😀", "\n", '"', "\\", "1", "-"), { maxLength: 6 });

test("patterns match the texts that the language's own regular expressions match", () => {
  fc.assert(
    fc.property(anchored, fc.array(text, { minLength: 1, maxLength: 8 }), (pattern, texts) => {
      const regexes = new Regexes();
      const oracle = new RegExp(pattern, "u");
      const whole = new RegExp(`^(?:${pattern})$`, "u");
      for (const encoding of [plainEncoding(regexes), jsonEncoding(regexes)]) {
        const anywhere = compilePattern(regexes, pattern, encoding, "anywhere");
        const exact = compilePattern(regexes, pattern, encoding, "whole");
        for (const one of texts.map((characters) => characters.join(""))) {
          const bytes = encoding.bytesOf(one);
          expect([pattern, one, regexes.matches(anywhere, bytes)]).toEqual([pattern, one, oracle.test(one)]);
          expect([pattern, one, regexes.matches(exact, bytes)]).toEqual([pattern, one, whole.test(one)]);
        }
      }
    }),
    runs(80),
  );
});

/** Boolean combinations; two separate patterns give the expected result. */
test("intersections and complements are those of the languages, and emptiness is exact", () => {
  fc.assert(
    fc.property(source, source, text, (a, b, characters) => {
      const regexes = new Regexes();
      const encoding = plainEncoding(regexes);
      const [first, second] = [a, b].map((one) => compilePattern(regexes, one, encoding, "whole")) as [
        Regex,
        Regex,
      ];
      const one = characters.join("");
      const bytes = encoding.bytesOf(one);
      const isIn = (pattern: string): boolean => new RegExp(`^(?:${pattern})$`, "u").test(one);
      expect(regexes.matches(regexes.and([first, second]), bytes)).toBe(isIn(a) && isIn(b));
      const difference = regexes.and([first, regexes.not(second)]);
      expect(regexes.matches(difference, bytes)).toBe(isIn(a) && !isIn(b));
      const isKnownEmpty = (regex: Regex): boolean | null => {
        regexes.budget = new Budget(20_000);
        try {
          return regexes.isEmpty(regex);
        } catch {
          return null; // its automaton is large
        } finally {
          regexes.budget = new Budget(Number.POSITIVE_INFINITY);
        }
      };
      if (regexes.matches(difference, bytes)) expect(isKnownEmpty(difference)).not.toBe(true);
      expect(isKnownEmpty(regexes.and([first, regexes.not(first)]))).not.toBe(false);
      for (const height of [1, 4, 16]) {
        const clamped = regexes.clamped(first, height);
        if (bytes.length <= height)
          expect(regexes.matches(clamped, bytes)).toBe(regexes.matches(first, bytes));
      }
    }),
    runs(200),
  );
});

test("patterns that may come anywhere, together with others and without them", () => {
  fc.assert(
    fc.property(anchored, anchored, text, (a, b, characters) => {
      const regexes = new Regexes();
      const encoding = jsonEncoding(regexes);
      const quote = regexes.bytes([34, 34]);
      const [first, second] = [a, b].map((one) => compilePattern(regexes, one, encoding, "anywhere")) as [
        Regex,
        Regex,
      ];
      const one = characters.join("");
      const isIn = (pattern: string): boolean => new RegExp(pattern, "u").test(one);
      const not = regexes.and([encoding.anyText, regexes.not(second)]);
      const bytes = [...encoding.bytesOf(one), 34];
      const matches = (regex: Regex): boolean => regexes.matches(regexes.cat(regex, quote), bytes);
      expect(matches(regexes.alt([first, second]))).toBe(isIn(a) || isIn(b));
      expect(matches(regexes.and([first, second]))).toBe(isIn(a) && isIn(b));
      expect(matches(regexes.and([first, not]))).toBe(isIn(a) && !isIn(b));
      expect(matches(regexes.alt([first, not]))).toBe(isIn(a) || !isIn(b));
      expect(matches(regexes.and([first, regexes.not(first)]))).toBe(false);
      expect(matches(regexes.alt([encoding.anyText, first, second]))).toBe(true);
    }),
    runs(200),
  );
});

test("once a word has come, any text may follow, and nothing is remembered of the word", () => {
  const regexes = new Regexes();
  const encoding = jsonEncoding(regexes);
  const words = ["customer", "maker", "designer"].map((word) =>
    compilePattern(regexes, word, encoding, "anywhere"),
  );
  const after = (regex: Regex, text: string): Regex =>
    [...encoding.bytesOf(text)].reduce<Regex>((rest, byte) => regexes.derivative(rest, byte), regex);
  for (const text of ["customer", "a maker", "design designer\n"])
    expect(after(regexes.alt(words), text)).toBe(encoding.anyText);
  const [first, ...others] = words as [Regex, ...Regex[]];
  const alone = regexes.and([first, ...others.map((one) => regexes.not(one))]);
  expect(after(alone, "a maker")).toBe(regexes.empty);
  // The `.` excludes line ends, some of which have several bytes.
  const without = regexes.and([
    encoding.anyText,
    regexes.not(compilePattern(regexes, "^.*://", encoding, "anywhere")),
  ]);
  expect(after(without, "http://")).toBe(regexes.empty);
  expect(after(alone, "a customer, cust")).toBe(after(alone, "customer"));
});

test("alternatives that differ in a count alone are one, within a character as well", () => {
  const regexes = new Regexes();
  const { oneOf } = jsonEncoding(regexes);
  const character = oneOf(allCharacters);
  const times = (min: number, max: number): Regex =>
    regexes.cat(regexes.repeat(character, min, max), regexes.literal([46]));
  expect(regexes.alt([times(3, 5), times(0, 2), times(4, 9)])).toBe(times(0, 9));
  expect(regexes.alt([times(4, 5), times(0, 2)])).not.toBe(times(0, 5));
  const [first] = new TextEncoder().encode("é");
  const after = (regex: Regex): Regex => regexes.derivative(regex, first!);
  expect(regexes.alt([after(times(3, 5)), after(times(1, 4))])).toBe(after(times(1, 5)));
});

test("a name of labels whose dots may belong to them takes few states", () => {
  const regexes = new Regexes();
  const pattern = "^(?!.*://)(?=.{1,255}$)((.{1,63}\\.){1,127}(?![0-9]*$)[a-z0-9-]+\\.?)$";
  let rest = compilePattern(regexes, pattern, jsonEncoding(regexes), "anywhere");
  const before = regexes.size;
  for (const byte of new TextEncoder().encode("a.b.c.example.com.and.so.on.a.b.c.d.e.f")) {
    rest = regexes.derivative(rest, byte);
    expect(regexes.isEmpty(rest)).toBe(false);
  }
  expect(regexes.isNullable(rest)).toBe(true);
  expect(regexes.size - before).toBeLessThan(5000);
});

test("what is not regular is refused by name", () => {
  const regexes = new Regexes();
  const compile = (source: string): Regex =>
    compilePattern(regexes, source, plainEncoding(regexes), "anywhere");
  const refusals: Readonly<Record<string, string>> = {
    "(a)\\1": "a back reference",
    "(?<=a)b": "a lookbehind",
    "a\\b": "a word boundary",
    "(?:^a)*": "an assertion inside of a repetition",
    "a?^b": "a ^ after what may be empty",
    "(": "a group without its )",
    "a**": "nothing before *",
    "[b-a]": "a range of characters that ends before it begins",
    "\\p{Nonsense}": "no property of characters",
  };
  for (const [source, reason] of Object.entries(refusals)) expect(() => compile(source)).toThrow(reason);
  expect(() => compile("a".repeat(8193))).toThrow("8192 characters at most, but has 8193");
  expect(() => compile("(".repeat(65) + ")".repeat(65))).toThrow("more than 64 groups in each other");
});

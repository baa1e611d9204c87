import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { compilePattern } from "./pattern.ts";
import { type Regex, Regexes } from "./regexes.ts";
import { allCharacters, jsonEncoding } from "./text.ts";

/**
 * Patterns that end after few iterations, after any number of them, after an even number, or never once a
 * length is missed.
 */
const patterns = [
  "^(?:[ab]+ ){0,9}[ab]+$",
  "^(?:\\S+\\s+){0,40}\\S+$",
  "^(?:[^b]b){0,9}$",
  "^(?:ab)*$",
  "^a{3,25}b?$",
  "^a?b{2}$",
  "^(?:a{4}|b*)$",
  "^[^a]{1,30}$",
  "a.*b",
  "",
];
const alphabet = [...new TextEncoder().encode('ab é\\n"')];

const texts = fc.record({
  pattern: fc.constantFrom(...patterns),
  min: fc.constantFrom(0, 1, 2, 5, 12, 30),
  more: fc.constantFrom(0, 3, 8, 20, Number.POSITIVE_INFINITY),
  begun: fc.array(fc.constantFrom("a", "b", " ", "ab", "é"), { maxLength: 8 }),
  bytes: fc.constantFrom(1, 2, 4, 6),
  isTold: fc.boolean(),
});

test("for so many bytes a clamped expression goes the same way", () => {
  fc.assert(
    fc.property(texts, ({ pattern, min, more, begun, bytes, isTold }) => {
      const regexes = new Regexes();
      const encoding = jsonEncoding(regexes);
      const length = regexes.repeat(encoding.oneOf(allCharacters), min, min + more);
      const text = compilePattern(regexes, pattern, encoding, "anywhere");
      const whole = regexes.cat(
        isTold ? text : regexes.and([text, length]),
        regexes.literal(new TextEncoder().encode('"')),
      );
      let rest = whole;
      for (const byte of new TextEncoder().encode(begun.join(""))) rest = regexes.derivative(rest, byte);
      const seen = new Set<string>();
      const compare = (one: Regex, other: Regex, left: number): void => {
        const key = `${one} ${other} ${left}`;
        if (one === other || seen.has(key)) return;
        seen.add(key);
        const state = (regex: Regex): boolean[] => [regexes.isNullable(regex), regexes.isEmpty(regex)];
        expect(state(other)).toEqual(state(one));
        if (left === 0 || regexes.isEmpty(one)) return;
        for (const byte of alphabet)
          compare(regexes.derivative(one, byte), regexes.derivative(other, byte), left - 1);
      };
      compare(rest, regexes.clamped(rest, bytes), bytes);
    }),
    runs(400),
  );
});

import { expect, test } from "bun:test";
import { Budget } from "../error.ts";
import { compilePattern } from "../regex/pattern.ts";
import { type Regex, Regexes } from "../regex/regexes.ts";
import { allCharacters, freeStrings, jsonEncoding } from "../regex/text.ts";
import { AlwaysOpen } from "./always-open.ts";

const regexes = new Regexes();
const strings = freeStrings(regexes);
const encoding = jsonEncoding(regexes);
const text = (pattern: string): Regex => compilePattern(regexes, pattern, encoding, "anywhere");
const length = (min: number, max: number): Regex => regexes.repeat(encoding.oneOf(allCharacters), min, max);

/** True if any character may follow inside the string, as found within `steps` steps of work. */
function isOpen(inside: Regex, steps: number): boolean {
  const open = new AlwaysOpen(regexes, strings);
  const { value } = open
    .has(regexes.cat(inside, strings.quote), new Budget(Number.POSITIVE_INFINITY), steps)
    .next();
  return value === true;
}

const endless = Number.POSITIVE_INFINITY;
for (const [what, inside] of [
  ["a word that may be found anywhere", text("ab\\d+")],
  ["two of them, and so many characters at least", regexes.and([text("ab"), text("é"), length(9, endless)])],
  ["one of two", regexes.alt([text("^a$"), text("b")])],
  ["all names but a few", regexes.and([encoding.anyText, regexes.not(text("^(?:ab|cd)$"))])],
] as const) {
  test(`${what}: any characters may follow, which takes no search`, () => {
    expect(isOpen(inside, -1)).toBe(true);
  });
}

for (const [what, inside] of [
  ["a word at the beginning", text("^ab")],
  ["so many characters at most", regexes.and([text("ab"), length(0, 9)])],
  ["a word, and none of its letters", regexes.and([text("ab"), text("^[^a]*$")])],
  ["all names that have no such word", regexes.and([encoding.anyText, regexes.not(text("ab"))])],
] as const) {
  test(`${what}: not any characters may follow`, () => {
    expect(isOpen(inside, 100_000)).toBe(false);
  });
}

/** Searches find the same as JavaScript's own engine, and keep their step limit. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { compileRegex, regexLimits } from "./regex.ts";
import { searchRegex } from "./regex-search.ts";

function found(pattern: string, text: string, group: number | null = null): string | null {
  const regex = compileRegex(pattern, group);
  if ("problem" in regex) throw new Error(regex.problem);
  const search = searchRegex(regex, text);
  return search.kind === "found" ? search.text : null;
}

/** Engines differ in when they stop repeating an empty match. */
function mayBeEmpty(part: string): boolean {
  return new RegExp(`^(?:${part.replace(/\\b|(?<!\[)\^|\$/g, "")})$`, "u").test("");
}

const atom = fc.constantFrom(
  "a",
  "b",
  "é",
  "🐦",
  ".",
  "[ab]",
  "[^a]",
  "\\w",
  "\\W",
  "\\d",
  "[\\s-]",
  "\\b",
  "^",
  "$",
);
const pattern = fc.letrec<{ node: string; simple: string }>((tie) => ({
  simple: fc.oneof(
    { weight: 4, arbitrary: atom },
    { weight: 1, arbitrary: tie("node").map((node) => `(${node})`) },
    { weight: 1, arbitrary: tie("node").map((node) => `(?:${node})`) },
  ),
  node: fc.oneof(
    { depthSize: "small" },
    fc
      .array(
        fc
          .tuple(
            tie("simple"),
            fc.constantFrom("", "", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,}?"),
          )
          .map(([simple, times]) => (mayBeEmpty(simple) ? simple : simple + times)),
        { maxLength: 4 },
      )
      .map((parts) => parts.join("")),
    fc.tuple(tie("node"), tie("node")).map(([one, other]) => `${one}|${other}`),
  ),
})).node;
const text = fc.array(fc.constantFrom("a", "b", "é", "🐦", "A", "1", " ", "-", "\n"), { maxLength: 12 });

test("the first match is JavaScript's, whatever pattern and text, flags too", () => {
  fc.assert(
    fc.property(pattern, text, fc.constantFrom("", "i", "m", "s", "ims"), (body, letters, flags) => {
      const subject = letters.join("");
      const expected = new RegExp(body, `u${flags}`).exec(subject)?.[0] ?? null;
      expect(found(flags === "" ? body : `(?${flags})${body}`, subject, 0)).toBe(expected);
    }),
    runs(2000),
  );
});

test.each([
  ["Answer: (.*)", "Well.\nAnswer: 42 km\nBye", "42 km"],
  ["\\d+", "in 1999 or 2001", "1999"],
  ["(?:a|b)(c)?", "b", null],
  ['"name": "([^"]*)"', '{"name": "Nora"}', "Nora"],
  ["(?i)YES|no", "I say yes", "yes"],
  ["<(\\w+)>.*?</", "<b>x</b>", "b"],
  ["\\u00e9\\x41", "éA", "éA"],
])("%p in %p is %p", (one, subject, expected) => {
  expect(found(one, subject)).toBe(expected);
});

test.each([
  ["(a", "it has a ( without a )"],
  ["a)", "it has a ) without a ("],
  ["[a", "it has a [ without a ]"],
  ["*a", "it has a * with nothing to repeat"],
  ["a**", "it has two repetitions in a row"],
  ["(a)\\1", "back references are not supported"],
  ["(?=a)", "of (?…) only (?:…) is supported, and flags at the front"],
  ["a{1001}", "it repeats 1001 times, 1000 are allowed"],
  ["a{2,1}", "it repeats from 2 to 1 times"],
  ["((a{100}){100}){100}", "it is too large: more than 2000 instructions"],
  ["(?:(?:(?:){1000}){1000}){1000}", "it is too large: more than 2000 instructions"],
])("%p is refused", (bad, problem) => {
  expect(compileRegex(bad, null)).toEqual({ problem });
});

test("a pattern has 1000 characters at most", () => {
  expect(compileRegex("x".repeat(1000), null)).not.toHaveProperty("problem");
  const problem = "it has 1001 characters, 1000 are allowed";
  expect(compileRegex("x".repeat(1001), null)).toEqual({ problem });
});

test("a group that is not there is refused", () => {
  expect(compileRegex("(a)", 2)).toEqual({ problem: "it has 1 groups, and no group 2" });
});

test("patterns that hang backtracking engines take steps in proportion to the text, and end at the limit", () => {
  const long = "a".repeat(5000);
  expect(found("(a*)*b", long)).toBeNull();
  expect(found("(a|aa)+$", `${long}!`)).toBeNull();
  const regex = compileRegex("(?:.*a){1,20}!", 0);
  if ("problem" in regex) throw new Error(regex.problem);
  const units = regexLimits.stepsMax; // one step per character at least
  expect(searchRegex(regex, "a".repeat(units))).toEqual({ kind: "tooLong" });
});

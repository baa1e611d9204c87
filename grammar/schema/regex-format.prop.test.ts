import { expect, test } from "bun:test";
import fc from "fast-check";
import { acceptsInAnyOrder } from "../../tests/support/any-order.ts";
import { runs } from "../../tests/support/property.ts";
import { compileConstraint } from "../compile.ts";
import { Parser } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";

const schema = { type: "string", format: "regex" };
const parser = Parser.of(
  compileConstraint({ kind: "schema", schema, layout: "compact" }).grammar,
  new Regexes(),
);

function isPattern(source: string, flags: string): boolean {
  try {
    new RegExp(source, flags);
    return true;
  } catch {
    return false;
  }
}

test("what passes for a pattern is one, with the flag u and without", () => {
  const piece = fc.constantFrom(
    ...[..."()[]{}*+?|^$.\\-,aZ059é😀", "\\d", "(?:", "a-z", "{2,", "[^", "\\u00e9"],
  );
  let patterns = 0;
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const source = pieces.join("");
      if (!acceptsInAnyOrder(parser, source)) return;
      patterns++;
      expect([source, isPattern(source, ""), isPattern(source, "u")]).toEqual([source, true, true]);
    }),
    runs(5000),
  );
  expect(patterns).toBeGreaterThan(250);
});

test.each([
  "",
  "^[a-zA-Z0-9_]{3,16}$",
  "([abc])+\\s+$",
  "^(?:\\S+\\s+){0,99}\\S+?$",
  "^\\s*(it|describe)\\(\\s*['\"]([^'\"]+)['\"]",
  "[-a][\\-^a-][^]",
  "(a(b(c)*){2}){10,20}|\\u00e9|",
])("%p is a pattern", (source) => expect(acceptsInAnyOrder(parser, source)).toBe(true));

test.each(["*", "\\", "[", "(", "^(abc]", "a{3,1}", "[z-a]", "^*", "\\1", "(?<a>b)"])(
  "%p is none that is taken",
  (source) => expect(acceptsInAnyOrder(parser, source)).toBe(false),
);

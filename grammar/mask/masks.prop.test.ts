import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { compileConstraint } from "../compile.ts";
import { Budget } from "../error.ts";
import { GrammarBuilder, type GrammarSymbol } from "../grammar.ts";
import type { Parser } from "../parser/parser.ts";
import { compareBytes } from "../regex/expressions.ts";
import { compilePattern } from "../regex/pattern.ts";
import { Regexes } from "../regex/regexes.ts";
import { plainEncoding } from "../regex/text.ts";
import { compileSchema } from "../schema/compile-schema.ts";
import { Job } from "./job.ts";
import { Masks } from "./masks.ts";
import { Matcher, parserOf } from "./matcher.ts";
import { vocabularyOf } from "./vocabulary.ts";

const encoder = new TextEncoder();
/** Every byte, and pieces that cross the borders of strings, keys, numbers and characters. */
const pieces = [
  ...[
    "a",
    "b",
    "ab",
    "abc",
    "aaaa",
    "ba",
    " a",
    " b",
    "1",
    "12",
    "123",
    "-1",
    "0.",
    "1}",
    "12,",
    "é",
    "é",
    "日本",
    "😀",
  ],
  ...[
    '"',
    '":',
    '": ',
    '",',
    '", ',
    '", "',
    '","',
    '"}',
    '"]',
    '{"',
    '["',
    '{"a',
    '"a":',
    '"a": "',
    "}",
    "]",
    "},",
    "[",
    "[]",
  ],
  ...[
    "\\",
    "\\n",
    '\\"',
    "\\u",
    "\\u00",
    "1f",
    "tr",
    "true",
    "false",
    "null",
    "ull,",
    "\n",
    "  ",
    ", ",
    ": ",
    "{}",
    'a"}',
    'b",',
  ],
  ...[
    '","a"',
    '","a","',
    '","b","a"]',
    '["a","',
    '["a","a"',
    '["a","b","a',
    '",1,',
    "1,1",
    ",1,2,",
    '],["a","a"',
    ',"a"',
    '", "a',
    "1,1,",
    "null,null",
  ],
];
const tokens = [
  ...Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte)),
  ...pieces.map((one) => encoder.encode(one)),
];
const vocabulary = vocabularyOf(tokens.length + 1, (token) => tokens[token] ?? new Uint8Array(0));
// The cache is small, so that evicted buffers are reused for other masks.
const masks = new Masks(vocabulary, 0);

/**
 * Walks at random along allowed tokens. At each place the mask must equal the result of trying every token. A
 * forced token must be a prefix of all allowed tokens, or they of it.
 */
function check(matcher: Matcher, choices: readonly number[]): void {
  for (const choice of choices) {
    const forced = matcher.forcedTokens(8);
    const pieces = matcher.findMask();
    if (pieces instanceof Job) while (pieces.run(1 + (choice % 50)) === null);
    const mask = matcher.mask();
    const allowed = tokens
      .map((_, token) => token)
      .filter((token) => ((mask[token >>> 5]! >>> (token & 31)) & 1) === 1);
    const accepted = tokens.map((_, token) => token).filter((token) => matcher.fork().accept(token));
    expect(allowed).toEqual(accepted);
    if (forced.length > 0) {
      expect(matcher.mayEnd).toBe(false);
      const text = tokens[forced[0]!]!;
      for (const token of accepted) expect(isBegunAlike(tokens[token]!, text)).toBe(true);
      const after = matcher.fork();
      expect(after.accept(forced[0]!)).toBe(true);
      expect(after.forcedTokens(7)).toEqual(forced.slice(1));
    }
    if (allowed.length === 0) {
      expect(matcher.mustEnd && matcher.mayEnd).toBe(true);
      return;
    }
    const before = matcher.length;
    matcher.accept(allowed[choice % allowed.length]!);
    matcher.rollback(matcher.length - before);
    expect(matcher.mask()).toEqual(mask);
    matcher.accept(allowed[choice % allowed.length]!);
  }
}

function isBegunAlike(a: Uint8Array, b: Uint8Array): boolean {
  const shorter = Math.min(a.length, b.length);
  return compareBytes(a.subarray(0, shorter), b.subarray(0, shorter)) === 0;
}

const choices = fc.array(fc.nat(10_000), { minLength: 1, maxLength: 12 });

const schema = fc.letrec<{ value: object }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom<object>(
      { type: "string" },
      { type: "string", maxLength: 3 },
      { type: "string", minLength: 2, maxLength: 40 },
      { type: "string", pattern: "^a[ab]*$" },
      { type: "string", pattern: "é" },
      { type: "string", pattern: "^[^1]*$" },
      { type: "string", pattern: "^.+b.+$", maxLength: 7 },
      { type: "string", format: "email", maxLength: 9 },
      { type: "string", pattern: "^[^1]+b$", minLength: 2, maxLength: 30 },
      { type: "string", pattern: "^[a-z]{3,25}$" },
      { type: "string", pattern: "^(?:[a1é]+ ){0,9}[ab]+$", maxLength: 25 },
      { type: "string", pattern: "^(?:\\S+\\s+){0,12}\\S+$", minLength: 3, maxLength: 14 },
      { type: "string", pattern: "^(?:[^b]b){0,9}$", minLength: 1, maxLength: 18 },
      { type: "object", patternProperties: { a: { type: "number" }, b: { type: "integer" } } },
      { type: "object", patternProperties: { "^[^1]{1,20}$": {}, ab: { type: "null" } } },
      { enum: ["a", "ab", "abc", 'a"}', null, 12] },
      { type: "integer", minimum: -3, maximum: 120 },
      { type: "number" },
      {},
      { type: ["boolean", "null"] },
    ),
    fc.record({ type: fc.constant("array"), items: tie("value"), maxItems: fc.constantFrom(2, 100) }),
    fc.record({
      type: fc.constant("object"),
      properties: fc.dictionary(fc.constantFrom("a", "ab", "b", 'a"'), tie("value"), {
        noNullPrototype: true,
      }),
      required: fc.constantFrom([], ["a"]),
      additionalProperties: fc.oneof(fc.constant(false), tie("value")),
    }),
  ),
})).value;

/** Object whose keys may have any name: a key's closing quote is the second one of `"a":`. */
const keysOfAnyName = {
  type: "object",
  properties: {},
  required: [],
  additionalProperties: { type: "string" },
};

test("under a schema the mask is what trying every token gives", () => {
  fc.assert(
    fc.property(schema, choices, (source, walk) => {
      const builder = new GrammarBuilder(new Regexes());
      const { symbol } = compileSchema(source, builder, "compact", new Budget(1e6));
      let parser: Parser;
      try {
        parser = parserOf(builder.finish(symbol), masks);
      } catch (error) {
        expect((error as Error).message).toBe("nothing can be written that obeys it");
        return;
      }
      check(new Matcher(parser, masks), walk);
    }),
    { ...runs(60), examples: [[keysOfAnyName, [0, 1873, 9027, 0, 0]]] },
  );
});

/** Grammars that are ambiguous, left- and right-recursive, with overlapping terminals. */
const grammar = fc.array(
  fc.array(fc.array(fc.oneof(fc.nat(3), fc.integer({ min: -6, max: -1 })), { maxLength: 3 }), {
    minLength: 1,
    maxLength: 3,
  }),
  { minLength: 4, maxLength: 4 },
);
const terminals = ["a", "ab", "b?", "[ab]+", "1{2,3}", "é|\\n"];

/**
 * Lists of distinct items that are no enumeration. Some run out of values soon, or can be parsed in two ways.
 */
const distinct = fc.record({
  type: fc.constant("array"),
  uniqueItems: fc.constant(true),
  minItems: fc.constantFrom(0, 2),
  maxItems: fc.constantFrom(2, 4, 1000),
  items: fc.constantFrom<object>(
    { type: "string" },
    { type: "string", maxLength: 1 },
    { type: "string", pattern: "^[ab]{0,3}$" },
    { type: "string", pattern: "^a*b?$", maxLength: 4 },
    { type: "string", pattern: "^(a|b[a-k])$" },
    { type: ["string", "null"], minLength: 2 },
    { type: "integer" },
    { type: ["number", "string", "boolean"] },
  ),
});
const sets = fc.oneof<fc.Arbitrary<object>[]>(
  distinct,
  fc
    .tuple(distinct, distinct)
    .map(([a, { items }]) => ({ anyOf: [a, { type: "array", items, minItems: 3 }] })),
  distinct.map((items) => ({ type: "array", items })),
  distinct.map((a) => ({ type: "object", properties: { a }, required: ["a"] })),
);
/** Pieces of text from which two equal items are often made. */
const pieceOfSet = fc.constantFrom(
  ...['["', "[", "a", '","', '"', '"]', ",", "1", '"a', "b", '","a', '","a","'],
);

/** List in which no further item may begin with "a" once "a" has come. */
const onlyOneBeginsSo = {
  type: "array",
  items: { type: "string", pattern: "^(a|b[a-k])$" },
  uniqueItems: true,
};

test("under a schema of sets the mask is what trying every token gives", () => {
  fc.assert(
    fc.property(sets, fc.array(pieceOfSet, { maxLength: 10 }), choices, (source, begun, walk) => {
      const { grammar } = compileConstraint({ kind: "schema", schema: source, layout: "compact" });
      const matcher = new Matcher(parserOf(grammar, masks), masks);
      for (const piece of begun) {
        const text = encoder.encode(piece);
        matcher.accept(tokens.findLastIndex((token) => compareBytes(token, text) === 0));
      }
      check(matcher, walk);
    }),
    { ...runs(60), examples: [[onlyOneBeginsSo, ['["', "a"], [0]]] },
  );
});

test("near the most bytes of a set the mask is what trying every token gives", () => {
  const aaaa = tokens.findLastIndex((token) => compareBytes(token, encoder.encode("aaaa")) === 0);
  fc.assert(
    fc.property(
      fc.integer({ min: 2035, max: 2048 }),
      fc.constantFrom(0, 2),
      choices,
      (count, minItems, walk) => {
        const schema = { type: "array", items: { type: "string" }, uniqueItems: true, minItems };
        const { grammar } = compileConstraint({ kind: "schema", schema, layout: "compact" });
        const matcher = new Matcher(parserOf(grammar, masks), masks);
        for (const byte of encoder.encode('["')) matcher.accept(byte);
        for (let at = 0; at < count; at++) matcher.accept(aaaa);
        check(matcher, walk);
      },
    ),
    runs(6),
  );
});

test("under a grammar the mask is what trying every token gives", () => {
  fc.assert(
    fc.property(grammar, choices, (rules, walk) => {
      const regexes = new Regexes();
      const builder = new GrammarBuilder(regexes);
      const nonterminals = rules.map(() => builder.declare());
      const symbolOf = (symbol: number): GrammarSymbol =>
        symbol >= 0
          ? nonterminals[symbol]!
          : builder.terminal(compilePattern(regexes, terminals[~symbol]!, plainEncoding(regexes), "whole"));
      rules.forEach((productions, index) => {
        builder.define(
          nonterminals[index]!,
          productions.map((symbols) => ({ kind: "sequence", symbols: symbols.map(symbolOf) })),
        );
      });
      // A production that ends, so that the language is not empty.
      const start = builder.choice([
        nonterminals[0]!,
        builder.sequence(symbolOf(-1), nonterminals[1]!),
        symbolOf(-1),
      ]);
      check(new Matcher(parserOf(builder.finish(start), masks), masks), walk);
    }),
    runs(60),
  );
});

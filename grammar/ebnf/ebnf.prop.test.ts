/**
 * Random grammars in both notations compared with JavaScript's own regular expressions, and faults in real
 * grammars.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { compileConstraint } from "../compile.ts";
import { ConstraintError } from "../error.ts";
import { Parser, type ParseState } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";

/** Forms of a rule: in llama.cpp's notation, in Lark's, and as a regular expression. */
type Forms = readonly [gbnf: string, lark: string, regex: string];

const literal = fc.constantFrom("a", "b", "ab", "é").map((text): Forms => [`"${text}"`, `"${text}"`, text]);
const set = fc.constantFrom("[ab]", "[^a]", "[0-9]").map((text): Forms => [text, `/${text}/`, text]);
const { body } = fc.letrec<{ body: Forms; sequence: Forms; piece: Forms }>((tie) => ({
  body: fc.array(tie("sequence"), { minLength: 1, maxLength: 3 }).map(
    (ways): Forms =>
      formsOf(
        (at) => ways.map((way) => way[at]).join(" | "),
        (text) => text,
        ways.map((way) => way[2]).join("|"),
      ),
  ),
  sequence: fc.array(tie("piece"), { minLength: 1, maxLength: 3 }).map(
    (pieces): Forms =>
      formsOf(
        (at) => pieces.map((piece) => piece[at]).join(" "),
        (text) => text,
        pieces.map((piece) => piece[2]).join(""),
      ),
  ),
  piece: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    literal,
    set,
    fc
      .tuple(tie("body"), fc.constantFrom(...["*", "+", "?"], "{2}", "{1,3}"))
      .map(
        ([[gbnf, lark, regex], times]): Forms => [
          `(${gbnf})${times}`,
          `(${lark})${times.replace("{2}", "~2").replace("{1,3}", "~1..3")}`,
          `(?:${regex})${times}`,
        ],
      ),
  ),
}));
function formsOf(of: (form: 0 | 1) => string, wrap: (text: string) => string, regex: string): Forms {
  return [wrap(of(0)), wrap(of(1)), regex];
}
const text = fc
  .array(fc.constantFrom("a", "b", "é", "1"), { maxLength: 6 })
  .map((characters) => characters.join(""));

function matcherOf(grammar: string): (text: string) => boolean {
  const parser = Parser.of(compileConstraint({ kind: "grammar", text: grammar }).grammar, new Regexes());
  return (given) => {
    let state: ParseState | null = parser.start;
    for (const byte of new TextEncoder().encode(given)) {
      state = parser.next(state, byte);
      if (state === null) return false;
    }
    return state.mayEnd;
  };
}

test("grammars without recursion match what regular expressions match, in rules of their own and in one", () => {
  fc.assert(
    fc.property(body, body, fc.array(text, { minLength: 1, maxLength: 10 }), (one, other, given) => {
      const oracle = new RegExp(`^(?:(?:${one[2]})-(?:${other[2]}))$`, "u");
      const texts = [...given, ...given.flatMap((a, index) => `${a}-${given[given.length - 1 - index]}`)];
      const wanted = texts.filter((candidate) => oracle.test(candidate));
      const grammars = [
        `root ::= one "-" other\none ::= ${one[0]}\nother ::= ${other[0]}`,
        `root ::= (${one[0]}) "-" (${other[0]})`,
        `start: one "-" other\none: ${one[1]}\nother: ${other[1]}`,
      ];
      for (const grammar of grammars)
        expect([grammar, texts.filter(matcherOf(grammar))]).toEqual([grammar, wanted]);
    }),
    runs(100),
  );
});

/** Grammars as users write them. */
const written = [
  'root ::= sum "\\n"?\nsum ::= sum [+-] term | term # left\nterm ::= num | "(" ws sum ws ")"\nnum ::= [1-9] [0-9]{0,2} | "0"\nws ::= " "{,2}',
  'root ::= "{" pair ("," pair)* "}"\npair ::= "\\"" [a-z]+ "\\":" value\nvalue ::= [0-9]+ | root',
  '%import common.WS\n%ignore WS\nstart: (item ";")+\nitem: "let"i NAME "=" value | ","\nvalue: NUMBER | "[" [value ("," value)*] "]"\nNAME: /[a-z][a-z0-9]?/\nNUMBER: /[0-9]+(\\.[0-9]+)?/',
  'start: A~1..3 | B\nA.2: "x".."z"\nB: /(?:ab|c{2,3})+/ | "q" A?',
];

test("grammars with random faults are understood or refused, and nothing else comes of them", () => {
  const edit = fc.tuple(fc.nat(), fc.nat(3), fc.constantFrom(...'"()[]{}|*+?~\\/.,:=-#%^ \n0a\u{1f600}'));
  const faulty = fc
    .tuple(fc.constantFrom(...written), fc.array(edit, { minLength: 1, maxLength: 4 }))
    .map(([grammar, edits]) =>
      edits.reduce((now, [at, gone, put]) => {
        const place = at % (now.length + 1);
        return now.slice(0, place) + put + now.slice(place + gone);
      }, grammar),
    );
  let understood = 0;
  fc.assert(
    fc.property(faulty, (grammar) => {
      try {
        const { grammar: made } = compileConstraint({ kind: "grammar", text: grammar });
        expect(Parser.of(made, new Regexes()).start.count).toBeGreaterThanOrEqual(0);
        understood++;
      } catch (error) {
        if (!(error instanceof ConstraintError)) throw error;
      }
    }),
    runs(1000),
  );
  expect(understood).toBeGreaterThan(10);
});

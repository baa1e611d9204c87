import { describe, expect, test } from "bun:test";
import { compileConstraint } from "../compile.ts";
import { Parser, type ParseState } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";

function compile(text: string): (text: string) => boolean {
  const parser = Parser.of(compileConstraint({ kind: "grammar", text }).grammar, new Regexes());
  return (given) => {
    let state: ParseState | null = parser.start;
    for (const byte of new TextEncoder().encode(given)) {
      state = parser.next(state, byte);
      if (state === null) return false;
    }
    return state.mayEnd;
  };
}

const told = (allows: (text: string) => boolean, texts: readonly string[]): string[] => texts.filter(allows);

describe("llama.cpp's grammars", () => {
  test("rules call each other, on either side, with sets, counts and comments", () => {
    const allows = compile(`
      # a sum
      root ::= sum "\\n"?
      sum  ::= sum [+-] term | term   # left recursion
      term ::= num | "(" ws sum ws ")"
      num  ::= [1-9] [0-9]{0,2} | "0"
      ws   ::= " "{,2}
    `);
    const yes = ["1", "0", "12+3-100", "(1)", "( 1+( 2 ))", "1\n"];
    const no = ["", "01", "1000", "1+", "(1", "(   1)", "1\n\n"];
    expect(told(allows, [...yes, ...no])).toEqual(yes);
  });

  test("characters are those of Unicode", () => {
    const allows = compile('root ::= [^a-zé] "\\u00e9" . "\\x41"');
    expect(told(allows, ["1é€A", "😀é😀A", "aéxA", "éé1A", "1é1B"])).toEqual(["1é€A", "😀é😀A"]);
  });

  test("what is wrong is told with its line", () => {
    expect(() => compile("root ::= b")).toThrow("there is no rule b");
    expect(() => compile('a ::= "b"')).toThrow("the grammar has no rule root");
    expect(() => compile('root ::= "a"\n  ( "b"')).toThrow("line 2 of the grammar: a ) was expected");
    expect(() => compile("root ::= root")).toThrow("nothing can be written that obeys it");
    expect(() => compile('root ::= "a"{5,2}')).toThrow("a repetition that counts nothing");
    expect(() => compile('root ::= "a"{200000}')).toThrow("may count to 100000 at most");
  });
});

describe("Lark's grammars", () => {
  test("terminals, imports, ignored space, options and counts", () => {
    const allows = compile(`
      start: "let"i NAME "=" value (";" | ",")~1..2
      ?value: NUMBER -> number
            | ESCAPED_STRING
            | "[" [value ("," value)*] "]"
      NAME: /[a-z]+/ "0".."9"?
      %import common.NUMBER
      %import common.ESCAPED_STRING
      %import common.WS
      %ignore WS
    `);
    const yes = ["let x=1;", ' LET x1 = [1, "a b", []] ; ,', "let\tx = 1.5e3;;"];
    const no = ["let = 1;", "let x = 1", "let x12 = 1;", "let x = [1,];", "let x = 1;;;"];
    expect(told(allows, [...yes, ...no])).toEqual(yes);
  });

  test("what is not supported is told", () => {
    expect(() => compile("start: /a/i")).toThrow("the flag i is not supported");
    expect(() => compile("start: A\n%declare A")).toThrow("%declare is not supported");
    expect(() => compile("begin: /a/")).toThrow("the grammar has no rule start");
  });
});

test("a grammar is as long as it may be, and no longer", () => {
  const grammar = (units: number): string => `root ::= "a" #${"-".repeat(units - 14)}`;
  expect(compile(grammar(65_536))("a")).toBe(true);
  expect(() => compile(grammar(65_537))).toThrow(
    "a grammar may have 65536 characters at most, but has 65537",
  );
});

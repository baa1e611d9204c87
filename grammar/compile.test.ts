import { expect, test } from "bun:test";
import { compileConstraint } from "./compile.ts";
import { Parser, type ParseState } from "./parser/parser.ts";
import { Regexes } from "./regex/regexes.ts";

test("a choice is among ten thousand texts, and no more", () => {
  const compile = (count: number): Parser => {
    const texts = Array.from({ length: count }, (_, number) => `text ${number * 7919}`);
    return Parser.of(compileConstraint({ kind: "choice", texts }).grammar, new Regexes());
  };
  const parser = compile(10_000);
  const isAllowed = (text: string): boolean => {
    let state: ParseState | null = parser.start;
    for (const byte of new TextEncoder().encode(text)) {
      state = parser.next(state, byte);
      if (state === null) return false;
    }
    return state.mayEnd;
  };
  const asked = [0, 1, 9999].map((number) => `text ${number * 7919}`);
  expect([...asked, "text 1", "text ", `text ${10_000 * 7919}`].filter(isAllowed)).toEqual(asked);
  expect(() => compile(10_001)).toThrow("a choice must have 1 to 10000 texts, but has 10001");
  expect(() => compile(0)).toThrow("a choice must have 1 to 10000 texts, but has 0");
});

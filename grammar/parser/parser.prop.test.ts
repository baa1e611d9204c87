import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { GrammarBuilder, type Production } from "../grammar.ts";
import { Regexes } from "../regex/regexes.ts";
import { Parser, type ParseState } from "./parser.ts";

/**
 * Texts of the terminals. Symbols 0 … 2 are nonterminals, -1 is "a", -2 "b", -3 "ab", -4 the empty text or
 * "a".
 */
const terminalTexts: readonly (readonly string[])[] = [["a"], ["b"], ["ab"], ["", "a"]];
type Rule =
  | { readonly symbols: readonly number[] }
  | { readonly symbol: number; readonly min: number; readonly max: number };

/** Texts up to a length that each nonterminal derives, computed as a fixed point. */
function languageOf(rules: readonly (readonly Rule[])[], lengthMax: number): Set<string>[] {
  const languages = rules.map(() => new Set<string>());
  const of = (symbol: number): Iterable<string> =>
    symbol >= 0 ? languages[symbol]! : terminalTexts[~symbol]!;
  const join = (begun: Set<string>, symbol: number): Set<string> => {
    const joined = new Set<string>();
    for (const a of begun)
      for (const b of of(symbol)) if (a.length + b.length <= lengthMax) joined.add(a + b);
    return joined;
  };
  for (let hasChanged = true; hasChanged; ) {
    hasChanged = false;
    rules.forEach((productions, nonterminal) => {
      const found = languages[nonterminal]!;
      const before = found.size;
      for (const rule of productions) {
        if ("symbols" in rule) for (const text of rule.symbols.reduce(join, new Set([""]))) found.add(text);
        else {
          let times = new Set([""]);
          for (let count = 0; count <= Math.min(rule.max, lengthMax + rule.min); count++) {
            if (count >= rule.min) for (const text of times) found.add(text);
            times = join(times, rule.symbol);
          }
        }
      }
      if (found.size > before) hasChanged = true;
    });
  }
  return languages;
}

const symbol = fc.oneof(fc.nat(2), fc.integer({ min: -4, max: -1 }));
const rule: fc.Arbitrary<Rule> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ symbols: fc.array(symbol, { maxLength: 3 }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ symbol, min: fc.nat(2), max: fc.constantFrom(2, 3, Number.POSITIVE_INFINITY) }),
  },
);
const rules = fc.array(fc.array(rule, { minLength: 1, maxLength: 3 }), { minLength: 3, maxLength: 3 });

test("a text is read to its end exactly if the grammar derives it, and to any place from which there is an end", () => {
  const texts = [""];
  for (let i = 0; texts[i]!.length < 5; i++) texts.push(`${texts[i]}a`, `${texts[i]}b`);
  fc.assert(
    fc.property(rules, (given) => {
      const regexes = new Regexes();
      const builder = new GrammarBuilder(regexes);
      const nonterminals = given.map(() => builder.declare());
      const terminals = terminalTexts.map((options) =>
        builder.terminal(regexes.literals(options.map((text) => new TextEncoder().encode(text)))),
      );
      const symbolOf = (one: number): number => (one >= 0 ? nonterminals[one]! : terminals[~one]!);
      given.forEach((productions, index) => {
        builder.define(
          nonterminals[index]!,
          productions.map(
            (one): Production =>
              "symbols" in one
                ? { kind: "sequence", symbols: one.symbols.map(symbolOf) }
                : { kind: "repeat", symbol: symbolOf(one.symbol), min: one.min, max: one.max },
          ),
        );
      });
      const language = languageOf(given, 5)[0]!;
      let parser: Parser;
      try {
        parser = Parser.of(builder.finish(nonterminals[0]!), new Regexes());
      } catch (error) {
        expect([...language]).toEqual([]);
        expect((error as Error).message).toBe("nothing can be written that obeys it");
        return;
      }
      for (const text of texts) {
        let state: ParseState | null = parser.start;
        for (const byte of new TextEncoder().encode(text))
          state = state === null ? null : parser.next(state, byte);
        expect([text, state?.mayEnd ?? false]).toEqual([text, language.has(text)]);
        // Only beginnings of texts of at most this length are known to be viable.
        if ([...language].some((one) => one.startsWith(text)))
          expect([text, state === null]).toEqual([text, false]);
      }
    }),
    runs(300),
  );
});

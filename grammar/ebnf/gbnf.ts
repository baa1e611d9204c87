import { ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { Regexes } from "../regex/regexes.ts";
import { allCharacters, codePoints, otherThan } from "../regex/text.ts";
import { countOf, type Expression, RuleReader, RuleWriter } from "./rules.ts";

/**
 * Grammars in llama.cpp's notation (GBNF): `name ::= "text" | [a-z]+ other*`, starting with the rule `root`.
 * Rules may be recursive anywhere.
 */
export function compileGbnf(source: string, builder: GrammarBuilder): GrammarSymbol {
  const rules = new GbnfReader(source, builder.regexes).read();
  if (!rules.has("root")) throw new ConstraintError("the grammar has no rule root");
  const writer = new RuleWriter(builder, rules);
  for (const name of rules.keys()) writer.symbolOf(name);
  return writer.symbolOf("root");
}

const space = /(?:\s|#[^\n]*)+/y;
const ruleStart = /([a-zA-Z0-9_-]+)\s*::=/y;
const reference = /[a-zA-Z0-9_-]+/y;
const range = /\{(\d*)(,?)(\d*)\}/y;
const hexadecimal: Readonly<Record<string, RegExp>> = {
  x: /[0-9a-fA-F]{2}/y,
  u: /[0-9a-fA-F]{4}/y,
  U: /[0-9a-fA-F]{8}/y,
};
const escapes: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t" };

class GbnfReader extends RuleReader {
  constructor(source: string, regexes: Regexes) {
    super(source, regexes, { space, ruleStart, closing: /[|)]/y });
  }

  read(): Map<string, Expression> {
    const rules = new Map<string, Expression>();
    while (!this.scanner.isAtEnd) this.rule(rules);
    return rules;
  }

  protected atom(): Expression {
    const { scanner } = this;
    if (this.take(/\(/y) !== null) {
      const inner = this.choice();
      if (!this.take(/\)/y)) throw scanner.error("a ) was expected");
      return inner;
    }
    if (scanner.take(/"/y)) return { kind: "regex", regex: this.#literal() };
    if (scanner.take(/\[/y)) return { kind: "regex", regex: this.#set() };
    if (this.take(/\./y)) return { kind: "regex", regex: this.encoding.oneOf(allCharacters) };
    const name = scanner.take(reference)?.[0];
    if (name === undefined) throw scanner.error("something unexpected");
    scanner.take(space);
    return { kind: "rule", name };
  }

  protected counts(): readonly [number, number] | null {
    const { scanner } = this;
    const match = scanner.take(range);
    if (match === null) return null;
    scanner.take(space);
    const [, low = "", comma, high = ""] = match;
    const min = countOf(low, scanner);
    const max = comma === "" ? min : high === "" ? Number.POSITIVE_INFINITY : countOf(high, scanner);
    if (max < min || (low === "" && high === "")) throw scanner.error("a repetition that counts nothing");
    return [min, max];
  }

  #literal() {
    let text = "";
    while (!this.scanner.take(/"/y)) text += this.#character();
    this.scanner.take(space);
    return this.regexes.literal(this.encoding.bytesOf(text));
  }

  #set() {
    const { scanner } = this;
    const isNegated = scanner.take(/\^/y) !== null;
    const ranges: [number, number][] = [];
    while (!scanner.take(/\]/y)) {
      const low = this.#character().codePointAt(0)!;
      const isRange = scanner.sees(/-[^\]]/y);
      if (isRange) scanner.take(/-/y);
      const high = isRange ? this.#character().codePointAt(0)! : low;
      if (high < low) throw scanner.error("a range of characters that ends before it begins");
      ranges.push([low, high]);
    }
    scanner.take(space);
    const set = codePoints(ranges);
    return this.encoding.oneOf(isNegated ? otherThan(set) : set);
  }

  #character(): string {
    const { scanner } = this;
    const character = scanner.take(/[\s\S]/uy)?.[0];
    if (character === undefined) throw scanner.error("an unexpected end");
    if (character !== "\\") return character;
    const marker = scanner.take(/[\s\S]/uy)?.[0] ?? "";
    const digits = hexadecimal[marker];
    if (digits !== undefined) {
      const code = scanner.take(digits)?.[0];
      if (code === undefined) throw scanner.error("an escape without its digits");
      return String.fromCodePoint(Number.parseInt(code, 16));
    }
    if (escapes[marker] !== undefined) return escapes[marker];
    if (/^[a-zA-Z0-9]?$/.test(marker)) throw scanner.error(`\\${marker}, which means nothing`);
    return marker;
  }
}

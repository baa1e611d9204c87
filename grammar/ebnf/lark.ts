import { ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import { compilePattern } from "../regex/pattern.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { codePoints } from "../regex/text.ts";
import { countOf, type Expression, RuleReader, RuleWriter, type Scanner } from "./rules.ts";

/**
 * Grammars in Lark's notation: `start: "text" name+ | /regex/`, terminals in capitals, `%ignore` and some of
 * `%import common`. Any split of a text into terminals is valid, not only the longest match: priorities have
 * no meaning.
 */
export function compileLark(source: string, builder: GrammarBuilder): GrammarSymbol {
  const { rules, ignored } = new LarkReader(source, builder.regexes).read();
  if (!rules.has("start")) throw new ConstraintError("the grammar has no rule start");
  const spaced = ignored.length === 0 ? rules : withIgnored(rules, ignored);
  const writer = new RuleWriter(builder, spaced);
  for (const name of spaced.keys()) writer.symbolOf(name);
  const start = writer.symbolOf("start");
  if (ignored.length === 0) return start;
  return builder.sequence(builder.repeat(writer.symbolOf(ignoredRule), 0, Number.POSITIVE_INFINITY), start);
}

const ignoredRule = "%ignore";

/** Inserts the ignored terminals after each terminal of a rule. */
function withIgnored(
  rules: ReadonlyMap<string, Expression>,
  ignored: readonly Expression[],
): Map<string, Expression> {
  const some: Expression = {
    kind: "repeat",
    of: { kind: "rule", name: ignoredRule },
    min: 0,
    max: Number.POSITIVE_INFINITY,
  };
  const spaced = (expression: Expression): Expression => {
    switch (expression.kind) {
      case "regex":
        return { kind: "sequence", parts: [expression, some] };
      case "rule":
        return isTerminal(expression.name) ? { kind: "sequence", parts: [expression, some] } : expression;
      case "repeat":
        return { ...expression, of: spaced(expression.of) };
      default:
        return { ...expression, parts: expression.parts.map(spaced) };
    }
  };
  const all = new Map([...rules].map(([name, rule]) => [name, isTerminal(name) ? rule : spaced(rule)]));
  return all.set(ignoredRule, { kind: "choice", parts: ignored });
}

function isTerminal(name: string): boolean {
  return /^_*[A-Z]/.test(name);
}

/** Terminals of Lark's own module common. */
const common: Readonly<Record<string, string>> = {
  DIGIT: "[0-9]",
  HEXDIGIT: "[a-fA-F0-9]",
  INT: "[0-9]+",
  SIGNED_INT: "[+-]?[0-9]+",
  DECIMAL: "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)",
  FLOAT: "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)",
  NUMBER: "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
  SIGNED_NUMBER: "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
  ESCAPED_STRING: '"(?:[^"\\\\\\n]|\\\\[^\\n])*"',
  LCASE_LETTER: "[a-z]",
  UCASE_LETTER: "[A-Z]",
  LETTER: "[a-zA-Z]",
  WORD: "[a-zA-Z]+",
  CNAME: "[a-zA-Z_][a-zA-Z0-9_]*",
  WS_INLINE: "[ \\t]+",
  WS: "[ \\t\\f\\r\\n]+",
  NEWLINE: "(?:\\r?\\n)+",
};

const space = /(?:[ \t\r\n]|\/\/[^\n]*|#[^\n]*)+/y;
const ruleStart = /[?!]{0,2}([a-zA-Z_][a-zA-Z0-9_]*)(?:\.-?\d+)?[ \t]*:/y;
const directive = /%[a-z]+/y;
const names = /[a-zA-Z_][a-zA-Z0-9_]*/y;
const quoted = /"((?:[^"\\\n]|\\[^\n])*)"(i?)/y;
const regularExpression = /\/((?:[^/\\\n]|\\[^\n])+)\/([a-z]*)/y;

class LarkReader extends RuleReader {
  constructor(source: string, regexes: Regexes) {
    super(source, regexes, { space, ruleStart, closing: /[|)\]]|%[a-z]+/y });
  }

  read(): { readonly rules: Map<string, Expression>; readonly ignored: Expression[] } {
    const { scanner } = this;
    const rules = new Map<string, Expression>();
    const ignored: Expression[] = [];
    while (!scanner.isAtEnd) {
      const command = this.take(directive);
      if (command !== null) {
        if (command[0] === "%ignore") ignored.push(this.choice());
        else if (command[0] === "%import") this.#import(rules);
        else throw scanner.error(`${command[0]} is not supported`);
      } else this.rule(rules);
    }
    return { rules, ignored };
  }

  #import(rules: Map<string, Expression>): void {
    const { scanner } = this;
    const match = this.take(/common\.([A-Z_]+)(?:[ \t]*->[ \t]*([A-Z_]+))?/y);
    const source = match === null ? undefined : common[match[1]!];
    if (match === null || source === undefined)
      throw scanner.error(`only ${Object.keys(common).join(", ")} of common can be imported`);
    rules.set(match[2] ?? match[1]!, { kind: "regex", regex: this.#pattern(source) });
  }

  /** Skips the alias of an alternative. */
  protected override skip(): void {
    while (this.take(/->[ \t]*[a-zA-Z_][a-zA-Z0-9_]*/y) !== null);
  }

  protected atom(): Expression {
    const { scanner } = this;
    if (this.take(/\(/y) !== null) return this.#closed(/\)/y);
    if (this.take(/\[/y) !== null) return { kind: "repeat", of: this.#closed(/\]/y), min: 0, max: 1 };
    const low = this.take(quoted);
    if (low !== null) {
      const high = this.take(/\.\.[ \t]*"((?:[^"\\\n]|\\[^\n])*)"/y);
      if (high === null) return { kind: "regex", regex: this.#text(low[1]!, low[2] === "i") };
      const [from, to] = [unescaped(low[1]!, scanner), unescaped(high[1]!, scanner)];
      const ends: [number, number] = [from.codePointAt(0) ?? 0, to.codePointAt(0) ?? 0];
      return { kind: "regex", regex: this.encoding.oneOf(codePoints([ends])) };
    }
    const pattern = this.take(regularExpression);
    if (pattern !== null) {
      if (pattern[2] !== "") throw scanner.error(`the flag ${pattern[2]} is not supported`);
      return { kind: "regex", regex: this.#pattern(pattern[1]!.replaceAll("\\/", "/")) };
    }
    const name = this.take(names)?.[0];
    if (name === undefined) throw scanner.error("something unexpected");
    return { kind: "rule", name };
  }

  #closed(end: RegExp): Expression {
    const inner = this.choice();
    if (this.take(end) === null) throw this.scanner.error("a group that is not closed");
    return inner;
  }

  protected counts(): readonly [number, number] | null {
    const match = this.take(/~[ \t]*(\d+)(?:[ \t]*\.\.[ \t]*(\d+))?/y);
    if (match === null) return null;
    const min = countOf(match[1]!, this.scanner);
    const max = match[2] === undefined ? min : countOf(match[2], this.scanner);
    if (max < min) throw this.scanner.error("a repetition that counts nothing");
    return [min, max];
  }

  #text(quotedText: string, ignoresCase: boolean): Regex {
    const text = unescaped(quotedText, this.scanner);
    if (!ignoresCase) return this.regexes.literal(this.encoding.bytesOf(text));
    const characters = [...text].map((character) =>
      this.regexes.alt(
        [character.toLowerCase(), character.toUpperCase()].map((one) =>
          this.regexes.literal(this.encoding.bytesOf(one)),
        ),
      ),
    );
    return this.regexes.cat(...characters);
  }

  #pattern(source: string): Regex {
    return compilePattern(this.regexes, source, this.encoding, "whole");
  }
}

/** Resolves the escapes of a text: those of JSON and a few more. */
function unescaped(text: string, scanner: Scanner): string {
  return text.replace(
    /\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([\s\S]))/g,
    (_, short, long, other: string) => {
      const code = short ?? long;
      if (code !== undefined) return String.fromCodePoint(Number.parseInt(code, 16));
      const known: Readonly<Record<string, string>> = { n: "\n", r: "\r", t: "\t", f: "\f" };
      if (known[other] !== undefined) return known[other];
      if (/[a-zA-Z0-9]/.test(other)) throw scanner.error(`\\${other}, which means nothing`);
      return other;
    },
  );
}

import { ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { plainEncoding, type TextEncoding } from "../regex/text.ts";

/** Right side of a rule. `max` may be Infinity. */
export type Expression =
  | { readonly kind: "regex"; readonly regex: Regex }
  | { readonly kind: "rule"; readonly name: string }
  | { readonly kind: "sequence" | "choice"; readonly parts: readonly Expression[] }
  | { readonly kind: "repeat"; readonly of: Expression; readonly min: number; readonly max: number };

/** Count of a repetition at most. */
export const COUNT_MAX = 100_000;
const DEPTH_MAX = 64;

/** Writes rules as a grammar; expressions without rules become one terminal each. */
export class RuleWriter {
  readonly #builder: GrammarBuilder;
  readonly #rules: ReadonlyMap<string, Expression>;
  readonly #symbols = new Map<string, GrammarSymbol>();

  constructor(builder: GrammarBuilder, rules: ReadonlyMap<string, Expression>) {
    this.#builder = builder;
    this.#rules = rules;
  }

  /** Returns the symbol of a rule; throws ConstraintError if it does not exist. */
  symbolOf(name: string): GrammarSymbol {
    let symbol = this.#symbols.get(name);
    if (symbol === undefined) {
      const expression = this.#rules.get(name);
      if (expression === undefined) throw new ConstraintError(`there is no rule ${name}`);
      symbol = this.#builder.declare();
      this.#symbols.set(name, symbol);
      this.#builder.define(symbol, [{ kind: "sequence", symbols: [this.#write(expression, 0)] }]);
    }
    return symbol;
  }

  #write(expression: Expression, depth: number): GrammarSymbol {
    if (depth > DEPTH_MAX) throw new ConstraintError(`more than ${DEPTH_MAX} groups in each other`);
    const builder = this.#builder;
    const regex = this.#regular(expression);
    if (regex !== null) return builder.terminal(regex);
    switch (expression.kind) {
      case "rule":
        return this.symbolOf(expression.name);
      case "sequence":
        return builder.sequence(...expression.parts.map((part) => this.#write(part, depth + 1)));
      case "choice":
        return builder.choice(expression.parts.map((part) => this.#write(part, depth + 1)));
      case "repeat":
        return builder.repeat(this.#write(expression.of, depth + 1), expression.min, expression.max);
      case "regex":
        return builder.terminal(expression.regex);
    }
  }

  /** Returns the expression as one regex if it refers to no rule; else null. */
  #regular(expression: Expression): Regex | null {
    const { regexes } = this.#builder;
    switch (expression.kind) {
      case "regex":
        return expression.regex;
      case "rule":
        return null;
      case "repeat": {
        const of = this.#regular(expression.of);
        return of === null ? null : regexes.repeat(of, expression.min, expression.max);
      }
      default: {
        const parts: Regex[] = [];
        for (const part of expression.parts) {
          const regex = this.#regular(part);
          if (regex === null) return null;
          parts.push(regex);
        }
        return expression.kind === "sequence" ? regexes.cat(...parts) : regexes.alt(parts);
      }
    }
  }
}

/** Scanner of a grammar's source, by sticky patterns. */
export class Scanner {
  readonly #source: string;
  #at = 0;

  constructor(source: string) {
    this.#source = source;
  }

  get isAtEnd(): boolean {
    return this.#at >= this.#source.length;
  }

  /** Consumes a match of the sticky pattern here; null without one. */
  take(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.#source);
    if (match !== null) this.#at += match[0].length;
    return match;
  }

  /** True if the sticky pattern matches here. */
  sees(pattern: RegExp): boolean {
    pattern.lastIndex = this.#at;
    return pattern.test(this.#source);
  }

  error(what: string): ConstraintError {
    const line = this.#source.slice(0, this.#at).split("\n").length;
    const rest = this.#source.slice(this.#at, this.#at + 20).split("\n")[0]!;
    return new ConstraintError(`line ${line} of the grammar: ${what} at ${JSON.stringify(rest)}`);
  }
}

/** Patterns of a notation, all sticky. */
export interface Notation {
  /** White space and comments. */
  readonly space: RegExp;
  /** Beginning of a rule; the first group is its name. */
  readonly ruleStart: RegExp;
  /** Marks that end a sequence besides a rule's beginning. */
  readonly closing: RegExp;
}

/** Reads the alternatives, sequences and repetitions of a notation; a subclass reads the rest. */
export abstract class RuleReader {
  protected readonly scanner: Scanner;
  protected readonly regexes: Regexes;
  protected readonly encoding: TextEncoding;
  readonly #notation: Notation;

  constructor(source: string, regexes: Regexes, notation: Notation) {
    this.scanner = new Scanner(source);
    this.regexes = regexes;
    this.encoding = plainEncoding(regexes);
    this.#notation = notation;
    this.scanner.take(notation.space);
  }

  /** Reads an operand with all that precedes its repetitions. */
  protected abstract atom(): Expression;
  /** Reads a repetition with counts; null if there is none. */
  protected abstract counts(): readonly [min: number, max: number] | null;
  /** Skips what a sequence may hold besides operands. */
  protected skip(): void {}

  /** Reads a rule and adds it to the others. */
  protected rule(rules: Map<string, Expression>): void {
    const name = this.take(this.#notation.ruleStart)?.[1];
    if (name === undefined) throw this.scanner.error("a rule was expected");
    if (rules.has(name)) throw this.scanner.error(`there are two rules ${name}`);
    rules.set(name, this.choice());
  }

  protected choice(): Expression {
    const parts = [this.#sequence()];
    while (this.take(/\|/y) !== null) parts.push(this.#sequence());
    return parts.length === 1 ? parts[0]! : { kind: "choice", parts };
  }

  #sequence(): Expression {
    const { scanner } = this;
    const { ruleStart, closing } = this.#notation;
    const parts: Expression[] = [];
    for (;;) {
      this.skip();
      if (scanner.isAtEnd || scanner.sees(closing) || scanner.sees(ruleStart)) break;
      let part = this.atom();
      for (let times = this.#times(); times !== null; times = this.#times()) {
        part = { kind: "repeat", of: part, min: times[0], max: times[1] };
      }
      parts.push(part);
    }
    return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
  }

  #times(): readonly [number, number] | null {
    if (this.scanner.sees(this.#notation.ruleStart)) return null; // in Lark a rule may begin with ?
    if (this.take(/\*/y) !== null) return [0, Number.POSITIVE_INFINITY];
    if (this.take(/\+/y) !== null) return [1, Number.POSITIVE_INFINITY];
    if (this.take(/\?/y) !== null) return [0, 1];
    return this.counts();
  }

  /** Consumes a match of the sticky pattern and the white space after it; null without one. */
  protected take(pattern: RegExp): RegExpExecArray | null {
    const match = this.scanner.take(pattern);
    if (match !== null) this.scanner.take(this.#notation.space);
    return match;
  }
}

/** Parses the count of a repetition. */
export function countOf(text: string, scanner: Scanner): number {
  const count = Number(text);
  if (count > COUNT_MAX) throw scanner.error(`a repetition may count to ${COUNT_MAX} at most`);
  return count;
}

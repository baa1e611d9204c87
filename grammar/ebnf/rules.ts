import { ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { Regex } from "../regex/regexes.ts";

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

/** Parses the count of a repetition. */
export function countOf(text: string, scanner: Scanner): number {
  const count = Number(text);
  if (count > COUNT_MAX) throw scanner.error(`a repetition may count to ${COUNT_MAX} at most`);
  return count;
}

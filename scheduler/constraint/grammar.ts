import { type Budget, ConstraintError } from "./error.ts";
import type { Pieces } from "./job.ts";
import type { Automaton, Regex, Regexes, RegexShape } from "./regex/regexes.ts";

/**
 * What every constraint is compiled to: a context-free grammar over bytes whose terminals are regular expressions. Plain
 * data, so that it is compiled on one thread and used on another.
 *
 * There is no lexer that takes the longest match: a text is allowed if it can be cut into terminals in any way that the
 * grammar derives.
 */
export interface Grammar {
  /** Expressions by number; each refers to earlier ones only. */
  readonly regexes: readonly PlainRegex[];
  /** By terminal, the number of its expression. */
  readonly terminals: readonly number[];
  /** By nonterminal, what it may be. */
  readonly nonterminals: readonly (readonly Production[])[];
  /** A nonterminal. */
  readonly start: number;
}

/** A nonterminal's number, or ~n for terminal n. */
export type GrammarSymbol = number;

/** One way to write a nonterminal. `max` may be Infinity. */
export type Production =
  | { readonly kind: "sequence"; readonly symbols: readonly GrammarSymbol[] }
  | { readonly kind: "repeat"; readonly symbol: GrammarSymbol; readonly min: number; readonly max: number };

/** A regular expression whose parts are numbers of others. */
export type PlainRegex =
  | Exclude<RegexShape, { readonly kind: "cat" | "repeat" | "alt" | "and" | "not" | "automaton" }>
  | { readonly kind: "cat"; readonly head: number; readonly tail: number }
  | { readonly kind: "repeat"; readonly of: number; readonly min: number; readonly max: number }
  | { readonly kind: "alt" | "and"; readonly parts: readonly number[] }
  | { readonly kind: "not"; readonly of: number }
  | { readonly kind: "automaton"; readonly automaton: Automaton; readonly state: number };

/** Makes a grammar piece by piece. */
export class GrammarBuilder {
  readonly regexes: Regexes;
  readonly #terminals = new Map<Regex, number>();
  readonly #nonterminals: (Production[] | null)[] = [];

  constructor(regexes: Regexes) {
    this.regexes = regexes;
  }

  /** Productions and terminals so far. */
  get size(): number {
    return this.#nonterminals.length + this.#terminals.size;
  }

  terminal(regex: Regex): GrammarSymbol {
    let terminal = this.#terminals.get(regex);
    if (terminal === undefined) {
      terminal = this.#terminals.size;
      this.#terminals.set(regex, terminal);
    }
    return ~terminal;
  }

  /** A nonterminal whose productions are told later, so that it may be used in them. */
  declare(): GrammarSymbol {
    this.#nonterminals.push(null);
    return this.#nonterminals.length - 1;
  }

  /** Tells what a declared nonterminal may be. */
  define(nonterminal: GrammarSymbol, productions: Production[]): void {
    this.#nonterminals[nonterminal] = productions;
  }

  /** One after the other. */
  sequence(...symbols: readonly GrammarSymbol[]): GrammarSymbol {
    return symbols.length === 1 ? symbols[0]! : this.#add({ kind: "sequence", symbols });
  }

  /** Any of them. */
  choice(symbols: readonly GrammarSymbol[]): GrammarSymbol {
    if (symbols.length === 1) return symbols[0]!;
    return this.#add(...symbols.map((symbol): Production => ({ kind: "sequence", symbols: [symbol] })));
  }

  /** min to max times. */
  repeat(symbol: GrammarSymbol, min: number, max: number): GrammarSymbol {
    if (min === 1 && max === 1) return symbol;
    return this.#add({ kind: "repeat", symbol, min, max });
  }

  /** Nothing at all. */
  get nothing(): GrammarSymbol {
    return this.#add({ kind: "sequence", symbols: [] });
  }

  /** What can never be written. */
  get never(): GrammarSymbol {
    return this.#add();
  }

  /** Throws ConstraintError when there is no text that obeys. */
  finish(start: GrammarSymbol): Grammar {
    const wanted = start >= 0 ? start : this.sequence(start, this.nothing);
    // What was declared and never defined belongs to something that was given up.
    const nonterminals = this.#nonterminals.map((productions) => productions ?? []);
    return trimmed(this.regexes, [...this.#terminals.keys()], nonterminals, wanted);
  }

  #add(...productions: Production[]): GrammarSymbol {
    const nonterminal = this.declare();
    this.define(nonterminal, productions);
    return nonterminal;
  }
}

/** Without what can never be completed, never be reached, or only stands for something else. Whatever is left can be
 *  completed, so that a text which has begun well has a good end. */
function trimmed(
  regexes: Regexes,
  terminals: readonly Regex[],
  given: readonly (readonly Production[])[],
  start: number,
): Grammar {
  const isDead = terminals.map((regex) => regexes.isEmpty(regex));
  const isProductive = new Uint8Array(given.length);
  const canWrite = (symbol: GrammarSymbol): boolean =>
    symbol < 0 ? !isDead[~symbol] : isProductive[symbol] === 1;
  const isAlive = (production: Production): boolean =>
    production.kind === "sequence"
      ? production.symbols.every(canWrite)
      : production.min === 0 || canWrite(production.symbol);
  for (let hasChanged = true; hasChanged; ) {
    hasChanged = false;
    given.forEach((productions, nonterminal) => {
      if (isProductive[nonterminal] === 1 || !productions.some(isAlive)) return;
      isProductive[nonterminal] = 1;
      hasChanged = true;
    });
  }
  if (isProductive[start] === 0) throw new ConstraintError("nothing can be written that obeys it");

  const alive = given.map((productions) =>
    productions.filter(isAlive).map((production): Production => {
      const isNothing = production.kind === "repeat" && !canWrite(production.symbol);
      return isNothing ? { kind: "sequence", symbols: [] } : production;
    }),
  );
  /** What a nonterminal with one production of one symbol stands for. */
  const meantBy = (symbol: GrammarSymbol): GrammarSymbol => {
    let meant = symbol;
    for (let i = 0; i < 64 && meant >= 0; i++) {
      const [only, ...others] = alive[meant]!;
      if (only === undefined || others.length > 0 || only.kind !== "sequence" || only.symbols.length !== 1)
        break;
      meant = only.symbols[0]!;
    }
    return meant;
  };

  const numbers = new Map<number, number>();
  const terminalNumbers = new Map<number, number>();
  const order: number[] = [];
  const numberOf = (given: GrammarSymbol): GrammarSymbol => {
    const symbol = meantBy(given);
    if (symbol < 0) {
      const known = terminalNumbers.get(~symbol);
      if (known === undefined) terminalNumbers.set(~symbol, terminalNumbers.size);
      return ~(known ?? terminalNumbers.size - 1);
    }
    const known = numbers.get(symbol);
    if (known !== undefined) return known;
    numbers.set(symbol, numbers.size);
    order.push(symbol);
    return numbers.size - 1;
  };
  numbers.set(start, 0);
  order.push(start);
  const nonterminals: Production[][] = [];
  for (let i = 0; i < order.length; i++) {
    nonterminals.push(
      alive[order[i]!]!.map((production) =>
        production.kind === "sequence"
          ? { kind: "sequence", symbols: production.symbols.map(numberOf) }
          : { ...production, symbol: numberOf(production.symbol) },
      ),
    );
  }
  const used = [...terminalNumbers.keys()].map((terminal) => terminals[terminal]!);
  const plain = plainRegexes(regexes, used);
  return { ...plain, nonterminals, start: 0 };
}

/** The expressions of terminals as plain data. */
function plainRegexes(regexes: Regexes, roots: readonly Regex[]): Pick<Grammar, "regexes" | "terminals"> {
  const numbers = new Map<Regex, number>();
  const plain: PlainRegex[] = [];
  const visit = (root: Regex): void => {
    const stack = [root];
    while (stack.length > 0) {
      const regex = stack.at(-1)!;
      if (numbers.has(regex)) {
        stack.pop();
        continue;
      }
      const shape = regexes.shapeOf(regex);
      const missing = partsOf(shape).filter((part) => !numbers.has(part));
      if (missing.length > 0) {
        stack.push(...missing);
        continue;
      }
      stack.pop();
      numbers.set(regex, plain.length);
      plain.push(plainOf(shape, (part) => numbers.get(part)!));
    }
  };
  for (const root of roots) visit(root);
  return { regexes: plain, terminals: roots.map((root) => numbers.get(root)!) };
}

function partsOf(shape: RegexShape): readonly Regex[] {
  switch (shape.kind) {
    case "cat":
      return [shape.head, shape.tail];
    case "repeat":
    case "not":
      return [shape.of];
    case "alt":
    case "and":
      return shape.parts;
    default:
      return [];
  }
}

function plainOf(shape: RegexShape, numberOf: (part: Regex) => number): PlainRegex {
  switch (shape.kind) {
    case "cat":
      return { kind: "cat", head: numberOf(shape.head), tail: numberOf(shape.tail) };
    case "repeat":
      return { ...shape, of: numberOf(shape.of) };
    case "not":
      return { kind: "not", of: numberOf(shape.of) };
    case "alt":
    case "and":
      return { kind: shape.kind, parts: shape.parts.map(numberOf) };
    default:
      return shape;
  }
}

/** A grammar's terminals as expressions of `regexes`. */
export function* terminalsOf(grammar: Grammar, regexes: Regexes, budget: Budget): Pieces<Regex[]> {
  const made: Regex[] = [];
  for (const plain of grammar.regexes) {
    if (budget.isPaused) yield;
    budget.spend(10);
    const part = (number: number): Regex => made[number]!;
    made.push(regexOf(plain, regexes, part));
  }
  return grammar.terminals.map((number) => made[number]!);
}

function regexOf(plain: PlainRegex, regexes: Regexes, part: (number: number) => Regex): Regex {
  switch (plain.kind) {
    case "empty":
      return regexes.empty;
    case "epsilon":
      return regexes.epsilon;
    case "any":
      return regexes.any;
    case "set":
      return regexes.set(plain.set);
    case "cat":
      return regexes.cat(part(plain.head), part(plain.tail));
    case "repeat":
      return regexes.repeat(part(plain.of), plain.min, plain.max);
    case "alt":
      return regexes.alt(plain.parts.map(part));
    case "and":
      return regexes.and(plain.parts.map(part));
    case "not":
      return regexes.not(part(plain.of));
    case "automaton":
      return regexes.automaton(plain.automaton, plain.state);
  }
}

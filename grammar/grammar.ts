import { type Budget, ConstraintError } from "./error.ts";
import type { Pieces } from "./mask/job.ts";
import type { Automaton, Regex, Regexes, RegexShape } from "./regex/regexes.ts";
import { kinds, numbersOf } from "./regex/shape.ts";

/** Lists of numbers, one after the other, and where each begins; one entry more than lists. */
export interface FlatLists {
  readonly numbers: Float64Array;
  readonly starts: Int32Array;
}

/**
 * What every constraint is compiled to: a context-free grammar over bytes whose terminals are regular expressions. Plain
 * data, so that it is compiled on one thread and used on another; and numbers in shared memory, so that it takes nothing to hand
 * it over, and nothing to keep it.
 *
 * There is no lexer that takes the longest match: a text is allowed if it can be cut into terminals in any way that the
 * grammar derives. Nonterminal 0 is the whole text.
 */
export interface Grammar {
  /** Expressions as numbers (`numbersOf`), whose parts are numbers of earlier ones. */
  readonly expressions: FlatLists;
  readonly automata: readonly Automaton[];
  /** By terminal, the number of its expression. */
  readonly terminals: Int32Array;
  /** Productions of nonterminal 0, then of 1, …: `IN_SEQUENCE, 0, symbols …`, or `min, max, symbol` of a repetition; max may be
   *  Infinity. `DISTINCT - min, max, item, separator` where no two items are the same text. */
  readonly productions: FlatLists;
  /** By nonterminal, its first production; one entry more than nonterminals. */
  readonly firstProductions: Int32Array;
}

/** In place of how often a symbol comes at least: the production is a sequence of symbols. */
export const IN_SEQUENCE = -1;
/** The same, less how often an item comes at least: the symbols are an item and what separates two, and all items differ. */
export const DISTINCT = -2;
/** Where a production's symbols begin in its list. */
export const SYMBOLS_AT = 2;

/** A nonterminal's number, or ~n for terminal n. */
export type GrammarSymbol = number;

/** One way to write a nonterminal. `max` may be Infinity. */
export type Production =
  | { readonly kind: "sequence"; readonly symbols: readonly GrammarSymbol[] }
  | DistinctProduction
  | { readonly kind: "repeat"; readonly symbol: GrammarSymbol; readonly min: number; readonly max: number };

/** Items of a list at most of which no two may be the same, as each is told apart from all before it; and bytes of them, after which none
 *  comes that need not. */
export const DISTINCT_ITEMS_MAX = 64;
export const DISTINCT_BYTES_MAX = 8192;

/** min to max items of which no two are the same text: 1 at least, and DISTINCT_ITEMS_MAX at most. Both symbols are terminals: the item's
 *  has `min` texts at least, each a scalar of JSON, and the separator's begin with a comma. The list comes after a bracket. */
export interface DistinctProduction {
  readonly kind: "distinct";
  readonly item: GrammarSymbol;
  readonly separator: GrammarSymbol;
  readonly min: number;
  readonly max: number;
}

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

  /** Items of which no two are the same text. */
  distinct(items: Omit<DistinctProduction, "kind">): GrammarSymbol {
    return this.#add({ kind: "distinct", ...items });
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
  const isAlive = (production: Production): boolean => {
    switch (production.kind) {
      case "sequence":
        return production.symbols.every(canWrite);
      case "distinct":
        return canWrite(production.item);
      case "repeat":
        return production.min === 0 || canWrite(production.symbol);
    }
  };
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
      alive[order[i]!]!.map((production): Production => {
        if (production.kind === "sequence")
          return { kind: "sequence", symbols: production.symbols.map(numberOf) };
        if (production.kind === "repeat") return { ...production, symbol: numberOf(production.symbol) };
        const { item, separator } = production;
        return { ...production, item: numberOf(item), separator: numberOf(separator) };
      }),
    );
  }
  const used = [...terminalNumbers.keys()].map((terminal) => terminals[terminal]!);
  const productions = nonterminals.flat().map(numbersOfProduction);
  const counts = nonterminals.map(({ length }) => length);
  return {
    ...flatRegexes(regexes, used),
    productions: flat(productions),
    firstProductions: startsOf(counts),
  };
}

function numbersOfProduction(production: Production): number[] {
  if (production.kind === "sequence") return [IN_SEQUENCE, 0, ...production.symbols];
  if (production.kind === "distinct") {
    const { item, separator, min, max } = production;
    return [DISTINCT - min, max, item, separator];
  }
  return [production.min, production.max, production.symbol];
}

function flat(lists: readonly (readonly number[])[]): FlatLists {
  const starts = startsOf(lists.map(({ length }) => length));
  const numbers = new Float64Array(new SharedArrayBuffer(8 * starts.at(-1)!));
  for (const [index, list] of lists.entries()) numbers.set(list, starts[index]);
  return { numbers, starts };
}

/** Where each of several things begins of which there are so many, and where the last one ends. */
function startsOf(counts: readonly number[]): Int32Array {
  const starts = new Int32Array(new SharedArrayBuffer(4 * (counts.length + 1)));
  for (const [index, count] of counts.entries()) starts[index + 1] = starts[index]! + count;
  return starts;
}

/** The expressions of terminals as plain data. */
function flatRegexes(
  regexes: Regexes,
  roots: readonly Regex[],
): Pick<Grammar, "expressions" | "automata" | "terminals"> {
  const numbers = new Map<Regex, number>();
  const lists: number[][] = [];
  const automata: Automaton[] = [];
  const automatonNumber = (automaton: Automaton): number => {
    const known = automata.indexOf(automaton);
    return known < 0 ? automata.push(automaton) - 1 : known;
  };
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
      numbers.set(regex, lists.length);
      lists.push(numbersOf(shape, (part) => numbers.get(part)!, automatonNumber));
    }
  };
  for (const root of roots) visit(root);
  const terminals = new Int32Array(new SharedArrayBuffer(4 * roots.length));
  for (const [terminal, root] of roots.entries()) terminals[terminal] = numbers.get(root)!;
  return { expressions: flat(lists), automata, terminals };
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

/** A grammar's terminals as expressions of `regexes`. */
export function* terminalsOf(grammar: Grammar, regexes: Regexes, budget: Budget): Pieces<Regex[]> {
  const { expressions, automata, terminals } = grammar;
  const made: Regex[] = [];
  for (let number = 0; number < expressions.starts.length - 1; number++) {
    if (budget.isPaused) yield;
    budget.spend(10);
    const list = expressions.numbers.subarray(expressions.starts[number], expressions.starts[number + 1]);
    made.push(regexOf(list, regexes, automata, made));
  }
  return Array.from(terminals, (number) => made[number]!);
}

/** `made`: earlier expressions, by number. */
function regexOf(
  list: Float64Array,
  regexes: Regexes,
  automata: readonly Automaton[],
  made: readonly Regex[],
): Regex {
  const parts = (): Regex[] => Array.from(list.subarray(1), (part) => made[part]!);
  const [kind, first, second] = [kinds[list[0]!]!, list[1]!, list[2]!];
  switch (kind) {
    case "empty":
    case "epsilon":
    case "any":
      return regexes[kind];
    case "set":
      return regexes.set(Uint32Array.from(list.subarray(1)));
    case "cat":
      return regexes.cat(made[first]!, made[second]!);
    case "repeat":
      return regexes.repeat(made[first]!, second, list[3]!);
    case "alt":
    case "and":
      return regexes[kind](parts());
    case "not":
      return regexes.not(made[first]!);
    case "automaton":
      return regexes.automaton(automata[first]!, second);
  }
}

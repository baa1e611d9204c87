import { type Budget, ConstraintError } from "./error.ts";
import type { Pieces } from "./mask/job.ts";
import type { Automaton, Regex, Regexes, RegexShape } from "./regex/regexes.ts";
import { kinds, numbersOf } from "./regex/shape.ts";

/** Lists of numbers, concatenated, with the start of each; one start more than lists. */
export interface FlatLists {
  readonly numbers: Float64Array;
  readonly starts: Int32Array;
}

/**
 * Compiled form of every constraint: a context-free grammar over bytes whose terminals are regular
 * expressions. Plain data, compiled on one thread and used on another. Its numbers are in shared memory, so
 * that sending and keeping it cost nothing.
 *
 * There is no longest-match lexer: a text is allowed if any split into terminals can be derived. Nonterminal
 * 0 is the whole text.
 */
export interface Grammar {
  /** Expressions as numbers (`numbersOf`); their parts are numbers of earlier ones. */
  readonly expressions: FlatLists;
  readonly automata: readonly Automaton[];
  /** Number of each terminal's expression. */
  readonly terminals: Int32Array;
  /**
   * Productions of nonterminal 0, then of 1, …: `IN_SEQUENCE, 0, symbols …`, or `min, max, symbol` for a
   * repetition; max may be Infinity. `DISTINCT - min, max, item, separator` is a list whose items are
   * distinct texts.
   */
  readonly productions: FlatLists;
  /** First production by nonterminal; one entry more than nonterminals. */
  readonly firstProductions: Int32Array;
}

/** Marker in place of a repetition's min: the production is a sequence of symbols. */
export const IN_SEQUENCE = -1;
/**
 * Marker from which a list's min is subtracted: the symbols are item and separator, and all items are
 * distinct.
 */
export const DISTINCT = -2;
/** Index of the first symbol in a production's list. */
export const SYMBOLS_AT = 2;

/** Symbol: a nonterminal's number, or ~n for terminal n. */
export type GrammarSymbol = number;

/** Production: an alternative of a nonterminal. `max` may be Infinity. */
export type Production =
  | { readonly kind: "sequence"; readonly symbols: readonly GrammarSymbol[] }
  | DistinctProduction
  | { readonly kind: "repeat"; readonly symbol: GrammarSymbol; readonly min: number; readonly max: number };

/**
 * Items of a list of distinct items at most, since each is compared with all before it; and their bytes,
 * beyond which no optional item follows.
 */
export const DISTINCT_ITEMS_MAX = 64;
export const DISTINCT_BYTES_MAX = 8192;

/**
 * List of min to max distinct texts, 1 ≤ min, max ≤ DISTINCT_ITEMS_MAX. Both symbols are terminals. The
 * item's has at least `min` texts, each a JSON scalar; the separator's texts begin with a comma. The list
 * follows a bracket.
 */
export interface DistinctProduction {
  readonly kind: "distinct";
  readonly item: GrammarSymbol;
  readonly separator: GrammarSymbol;
  readonly min: number;
  readonly max: number;
}

/** Builder of a grammar. */
export class GrammarBuilder {
  readonly regexes: Regexes;
  readonly #terminals = new Map<Regex, number>();
  readonly #nonterminals: (Production[] | null)[] = [];

  constructor(regexes: Regexes) {
    this.regexes = regexes;
  }

  /** Number of productions and terminals. */
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

  /** Declares a nonterminal whose productions follow later, so that they may refer to it. */
  declare(): GrammarSymbol {
    this.#nonterminals.push(null);
    return this.#nonterminals.length - 1;
  }

  /** Defines the productions of a declared nonterminal. */
  define(nonterminal: GrammarSymbol, productions: Production[]): void {
    this.#nonterminals[nonterminal] = productions;
  }

  /** Returns the symbols in sequence. */
  sequence(...symbols: readonly GrammarSymbol[]): GrammarSymbol {
    return symbols.length === 1 ? symbols[0]! : this.#add({ kind: "sequence", symbols });
  }

  /** Returns an alternative of the symbols. */
  choice(symbols: readonly GrammarSymbol[]): GrammarSymbol {
    if (symbols.length === 1) return symbols[0]!;
    return this.#add(...symbols.map((symbol): Production => ({ kind: "sequence", symbols: [symbol] })));
  }

  /** Returns min to max repetitions of a symbol. */
  repeat(symbol: GrammarSymbol, min: number, max: number): GrammarSymbol {
    if (min === 1 && max === 1) return symbol;
    return this.#add({ kind: "repeat", symbol, min, max });
  }

  /** Returns a list of distinct items. */
  distinct(items: Omit<DistinctProduction, "kind">): GrammarSymbol {
    return this.#add({ kind: "distinct", ...items });
  }

  /** Symbol of the empty text. */
  get nothing(): GrammarSymbol {
    return this.#add({ kind: "sequence", symbols: [] });
  }

  /** Symbol that no text matches. */
  get never(): GrammarSymbol {
    return this.#add();
  }

  /** Returns the grammar; throws ConstraintError if no text is allowed. */
  finish(start: GrammarSymbol): Grammar {
    const wanted = start >= 0 ? start : this.sequence(start, this.nothing);
    // Nonterminals that were declared and never defined belong to abandoned alternatives.
    const nonterminals = this.#nonterminals.map((productions) => productions ?? []);
    return trimmed(this.regexes, [...this.#terminals.keys()], nonterminals, wanted);
  }

  #add(...productions: Production[]): GrammarSymbol {
    const nonterminal = this.declare();
    this.define(nonterminal, productions);
    return nonterminal;
  }
}

/**
 * Removes nonterminals that cannot be completed, cannot be reached, or only stand for another symbol. Every
 * remaining one can be completed, so that each allowed beginning has an allowed end.
 */
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
  /** Symbol that a nonterminal with one production of one symbol stands for. */
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

/** Start offsets of lists with these lengths, and the end of the last one. */
function startsOf(counts: readonly number[]): Int32Array {
  const starts = new Int32Array(new SharedArrayBuffer(4 * (counts.length + 1)));
  for (const [index, count] of counts.entries()) starts[index + 1] = starts[index]! + count;
  return starts;
}

/** Converts the expressions of terminals to plain data. */
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

/** Restores a grammar's terminals as expressions of `regexes`. */
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

import {
  DISTINCT,
  type FlatLists,
  type Grammar,
  type GrammarSymbol,
  IN_SEQUENCE,
  SYMBOLS_AT,
} from "../grammar.ts";

/** The items of a production whose items are distinct: before one of them, and after it. */
export const BEFORE_ITEM = 0;
export const AFTER_ITEM = 1;

/** A grammar's productions as a parser reads them: from the numbers that they are, of which nothing is made. */
export class Productions {
  readonly #lists: FlatLists;
  /** By nonterminal, its first production; one entry more than nonterminals. */
  readonly #firsts: Int32Array;
  /** By terminal and by nonterminal, 1 if it may be empty. */
  readonly #isEmptyTerminal: Uint8Array;
  readonly #isNullable: Uint8Array;

  constructor({ productions, firstProductions }: Grammar, isEmptyTerminal: Uint8Array) {
    this.#lists = productions;
    this.#firsts = firstProductions;
    this.#isEmptyTerminal = isEmptyTerminal;
    this.#isNullable = new Uint8Array(firstProductions.length - 1);
    this.#findNullable();
  }

  get count(): number {
    return this.#lists.starts.length - 1;
  }

  /** The first production of a nonterminal: those up to the first one of the next are its own. */
  firstOf(nonterminal: number): number {
    return this.#firsts[nonterminal]!;
  }

  /** How often the symbol of a repetition comes at least; IN_SEQUENCE: the production is none, below it: its items are distinct. */
  minOf(production: number): number {
    const { numbers, starts } = this.#lists;
    return numbers[starts[production]!]!;
  }

  isDistinct(production: number): boolean {
    return this.minOf(production) < IN_SEQUENCE;
  }

  /** How many distinct items come at least. */
  distinctMin(production: number): number {
    return DISTINCT - this.minOf(production);
  }

  /** Whether there is a production whose items are distinct. */
  get hasDistinct(): boolean {
    for (let production = 0; production < this.count; production++)
      if (this.isDistinct(production)) return true;
    return false;
  }

  maxOf(production: number): number {
    const { numbers, starts } = this.#lists;
    return numbers[starts[production]! + 1]!;
  }

  symbolCount(production: number): number {
    const { starts } = this.#lists;
    return starts[production + 1]! - starts[production]! - SYMBOLS_AT;
  }

  symbolOf(production: number, index: number): GrammarSymbol {
    const { numbers, starts } = this.#lists;
    return numbers[starts[production]! + SYMBOLS_AT + index]!;
  }

  /** The last of a production's items; of a repetition, the highest count that it tells apart. */
  dotMax(production: number): number {
    const min = this.minOf(production);
    if (min === IN_SEQUENCE) return this.symbolCount(production);
    if (this.isDistinct(production)) return AFTER_ITEM;
    const max = this.maxOf(production);
    return max === Number.POSITIVE_INFINITY ? min : max;
  }

  canBeEmpty(symbol: GrammarSymbol): boolean {
    return (symbol < 0 ? this.#isEmptyTerminal[~symbol] : this.#isNullable[symbol]) === 1;
  }

  #findNullable(): void {
    const firsts = this.#firsts;
    for (let hasChanged = true; hasChanged; ) {
      hasChanged = false;
      for (let nonterminal = 0; nonterminal < this.#isNullable.length; nonterminal++) {
        for (let one = firsts[nonterminal]!; one < firsts[nonterminal + 1]!; one++) {
          if (this.#isNullable[nonterminal] === 1 || !this.#mayBeEmpty(one)) continue;
          this.#isNullable[nonterminal] = 1;
          hasChanged = true;
        }
      }
    }
  }

  #mayBeEmpty(production: number): boolean {
    if (this.minOf(production) === 0) return true;
    for (let index = 0; index < this.symbolCount(production); index++)
      if (!this.canBeEmpty(this.symbolOf(production, index))) return false;
    return true;
  }
}

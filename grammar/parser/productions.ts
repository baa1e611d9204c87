import {
  DISTINCT,
  type FlatLists,
  type Grammar,
  type GrammarSymbol,
  IN_SEQUENCE,
  SYMBOLS_AT,
} from "../grammar.ts";

/** Dots of a production with distinct items: before an item, and after it. */
export const BEFORE_ITEM = 0;
export const AFTER_ITEM = 1;

/** Productions of a grammar, read in place from its flat arrays without making objects. */
export class Productions {
  readonly #lists: FlatLists;
  /** First production of each nonterminal; one entry more than nonterminals. */
  readonly #firsts: Int32Array;
  /** Flags: 1 if the terminal or nonterminal may be empty. */
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

  /** First production of a nonterminal; its productions end where those of the next begin. */
  firstOf(nonterminal: number): number {
    return this.#firsts[nonterminal]!;
  }

  /**
   * Fewest iterations of a repetition; IN_SEQUENCE for a sequence; less than that for a list of distinct
   * items.
   */
  minOf(production: number): number {
    const { numbers, starts } = this.#lists;
    return numbers[starts[production]!]!;
  }

  isDistinct(production: number): boolean {
    return this.minOf(production) < IN_SEQUENCE;
  }

  /** Fewest items of a list of distinct items. */
  distinctMin(production: number): number {
    return DISTINCT - this.minOf(production);
  }

  /** True if any production has distinct items. */
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

  /** Largest dot of a production; for a repetition, the largest count that makes a difference. */
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

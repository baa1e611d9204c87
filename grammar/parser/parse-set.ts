import type { CameItems } from "./distinct.ts";
import { type LexState, NO_STATE } from "./lexer.ts";

/** A nonterminal that began in a set, which items wait for there. */
export interface Frame {
  readonly id: number;
  /** Null: the whole text. */
  readonly origin: ParseSet | null;
}

/** A production, what of it is done, and what it completes. `dot` counts symbols, or the times of a repetition. */
export interface Item {
  readonly production: number;
  readonly dot: number;
  readonly frame: Frame;
  /** Of a production whose items are distinct: those that came. */
  readonly came: CameItems | null;
}

/** Numbers that are kept of an item: its production, its dot, of its frame the place of the origin and the number, and the place of
 *  what came; -1: it is none such. */
const ITEM_NUMBERS = 5;

/** A place between two terminals: everything that may be under way there. Kept as numbers and not as objects: of its items there are
 *  dozens, and thousands of sets. */
export class ParseSet {
  readonly id: number;
  /** Before the next terminal; NO_STATE: there is none. */
  lex = NO_STATE;
  /** Whether the text may end here. */
  isFinal = false;
  /** Whether it is in a list whose items are distinct, before one of them or after it. */
  isInList = false;
  /** Of the terminals before which it is, one that is an item of a list whose items are distinct: those that came; null: there is none. */
  distinct: CameItems | null = null;
  /** Whether that is so of several, or something else waits for the same text. */
  isMixed = false;
  /** Pairs of what items wait for, in ascending order, and where in this array they begin; then the items. */
  #numbers = new Int32Array(0);
  #groups = 0;
  /** Where items' frames began. */
  #origins: readonly (ParseSet | null)[] = [];
  #came: readonly CameItems[] = [];

  constructor(id: number) {
    this.id = id;
  }

  /** Once, when it is made. `waiting`: items by what they wait for. */
  fill(waiting: ReadonlyMap<number, readonly Item[]>, lex: LexState, isFinal: boolean): void {
    this.lex = lex;
    this.isFinal = isFinal;
    const groups = [...waiting].sort(([a], [b]) => a - b);
    const numbers: number[] = [];
    const origins: (ParseSet | null)[] = [];
    const all: CameItems[] = [];
    let at = 2 * groups.length;
    for (const [what, items] of groups) {
      numbers.push(what, at);
      at += ITEM_NUMBERS * items.length;
    }
    for (const [, items] of groups) {
      for (const { production, dot, frame, came } of items) {
        let origin = origins.indexOf(frame.origin);
        if (origin < 0) origin = origins.push(frame.origin) - 1;
        numbers.push(production, dot, origin, frame.id, came === null ? -1 : all.push(came) - 1);
      }
    }
    this.#numbers = Int32Array.from(numbers);
    this.#groups = groups.length;
    this.#origins = origins;
    this.#came = all;
    this.isInList = all.length > 0;
  }

  /** Items that wait for a terminal (`~terminal`) or a frame (its number). */
  itemsFor(what: number): Item[] {
    const numbers = this.#numbers;
    let [low, high] = [0, this.#groups - 1];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (numbers[2 * middle]! < what) low = middle + 1;
      else high = middle;
    }
    const end = low === this.#groups - 1 ? numbers.length : numbers[2 * low + 3]!;
    const items: Item[] = [];
    for (let at = numbers[2 * low + 1]!; at < end; at += ITEM_NUMBERS) {
      const frame = { id: numbers[at + 3]!, origin: this.#origins[numbers[at + 2]!]! };
      const came = this.#came[numbers[at + 4]!] ?? null;
      items.push({ production: numbers[at]!, dot: numbers[at + 1]!, frame, came });
    }
    return items;
  }
}

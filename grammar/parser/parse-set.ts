import type { CameItems } from "./distinct.ts";
import { type LexState, NO_STATE } from "./lexer.ts";

/** Nonterminal predicted at a set (its origin), for which Earley items wait there. */
export interface Frame {
  readonly id: number;
  /** Null for the whole text. */
  readonly origin: ParseSet | null;
}

/**
 * Earley item: a production, the dot in it, and the frame that it completes. `dot` counts symbols, or
 * iterations of a repetition.
 */
export interface Item {
  readonly production: number;
  readonly dot: number;
  readonly frame: Frame;
  /** Earlier items of a list of distinct items; null for other productions. */
  readonly came: CameItems | null;
}

/**
 * Numbers stored per item: production, dot, index of the frame's origin, frame number, and index of `came` or
 * -1.
 */
const ITEM_NUMBERS = 5;

/**
 * Earley set: all items at one place between two terminals. Stored as numbers, not objects, because there are
 * thousands of sets with dozens of items each.
 */
export class ParseSet {
  readonly id: number;
  /** Lexer state before the next terminal; NO_STATE if none can follow. */
  lex = NO_STATE;
  /** True if the text may end here. */
  isFinal = false;
  /** True if the place is in a list of distinct items, before or after one of them. */
  isInList = false;
  /** Earlier items, if an awaited terminal is an item of a list of distinct items; else null. */
  distinct: CameItems | null = null;
  /** True if several such lists, or other items, wait for the same text. */
  isMixed = false;
  /** Sorted pairs of an awaited symbol or frame and the offset of its items in this array; then the items. */
  #numbers = new Int32Array(0);
  #groups = 0;
  /** Origins of the items' frames. */
  #origins: readonly (ParseSet | null)[] = [];
  #came: readonly CameItems[] = [];

  constructor(id: number) {
    this.id = id;
  }

  /** Fills a new set, once. `waiting` groups items by the terminal or frame that they wait for. */
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

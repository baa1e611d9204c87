import { DISTINCT_BYTES_MAX, DISTINCT_ITEMS_MAX } from "../grammar.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { hasTexts } from "../regex/text-count.ts";

/**
 * Earlier items of a list without equal items, as a linked list from the newest back. Equal lists at one
 * place of a text are one object, unless `forget` was called in between.
 */
export interface CameItems {
  readonly id: number;
  /** List before its last item; null if it is empty. */
  readonly before: CameItems | null;
  /**
   * Bytes of the last item, a UTF-16 unit each; null if they are not known, so that they exclude no other
   * item.
   */
  readonly last: string | null;
  readonly count: number;
  /** Fewest items of the whole list. */
  readonly min: number;
  /** Bytes of all items whose text is known. */
  readonly bytes: number;
  /**
   * Terminal of an item, expression of its texts without exclusions, and expression of the next item; null
   * until computed.
   */
  readonly terminal: number;
  readonly item: Regex;
  rest: Regex | null;
}

/** True if no item may follow `count` items of `bytes` bytes. */
export function isFull({ min }: CameItems, count: number, bytes: number): boolean {
  return count >= min && bytes > DISTINCT_BYTES_MAX;
}

/** Tracks the items so far of lists without equal items. */
export class Distinct {
  readonly #regexes: Regexes;
  #known = new Map<string, CameItems>();
  #made = 0;
  /** True for an item expression with more texts than a list may have items. */
  readonly #isEndless = new Map<Regex, boolean>();

  constructor(regexes: Regexes) {
    this.#regexes = regexes;
  }

  /** Clears the table of lists: later lists are new objects. */
  forget(): void {
    this.#known = new Map();
  }

  /** Empty list. `key` identifies its production and place, `item` matches its items. */
  none(key: string, terminal: number, item: Regex, min: number): CameItems {
    return this.#keep(key, { before: null, last: null, count: 0, min, bytes: 0, terminal, item, rest: item });
  }

  /** List with one more item. */
  with(before: CameItems, last: string | null): CameItems {
    const { terminal, item, count, min } = before;
    const bytes = before.bytes + (last?.length ?? 0);
    const key = last === null ? `${before.id}` : `${before.id} ${last}`;
    return this.#keep(key, { before, last, count: count + 1, min, bytes, terminal, item, rest: null });
  }

  has(came: CameItems, text: string): boolean {
    for (let at: CameItems | null = came; at !== null; at = at.before) if (at.last === text) return true;
    return false;
  }

  /** Earlier items that begin with `text`. */
  begunSo(came: CameItems, text: string): string[] {
    const texts: string[] = [];
    for (let at: CameItems | null = came; at !== null; at = at.before)
      if (at.last !== null && at.last.length >= text.length && at.last.startsWith(text)) texts.push(at.last);
    return texts;
  }

  /** True if some item has not been used yet. */
  hasRest(came: CameItems): boolean {
    const { item } = came;
    let isEndless = this.#isEndless.get(item);
    if (isEndless === undefined) {
      isEndless = hasTexts(this.#regexes, item, DISTINCT_ITEMS_MAX + 1);
      this.#isEndless.set(item, isEndless);
    }
    return isEndless || !this.#regexes.isEmpty(this.restOf(came));
  }

  /** Expression of the items that have not been used yet. */
  restOf(came: CameItems): Regex {
    if (came.rest === null) {
      const { before, last } = came;
      const rest = this.restOf(before!);
      const regexes = this.#regexes;
      came.rest = last === null ? rest : regexes.and([rest, regexes.not(regexes.literal(bytesOf(last)))]);
    }
    return came.rest;
  }

  #keep(key: string, came: Omit<CameItems, "id">): CameItems {
    let known = this.#known.get(key);
    if (known === undefined) {
      known = { id: this.#made++, ...came };
      this.#known.set(key, known);
    }
    return known;
  }
}

function bytesOf(text: string): Uint8Array {
  return Uint8Array.from(text, (unit) => unit.charCodeAt(0));
}

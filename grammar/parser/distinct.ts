import { DISTINCT_BYTES_MAX, DISTINCT_ITEMS_MAX } from "../grammar.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { hasTexts } from "../regex/text-count.ts";

/** Items of which no two are the same text: those that came, from one on. Equal ones of one place of a text are one, unless they were
 *  forgotten meanwhile. */
export interface CameItems {
  readonly id: number;
  /** Before the last one came; null: none came. */
  readonly before: CameItems | null;
  /** The last one's bytes, a unit each; null: it is not known, so that nothing is demanded of others. */
  readonly last: string | null;
  readonly count: number;
  /** How many must. */
  readonly min: number;
  /** Of those whose text is known. */
  readonly bytes: number;
  /** The terminal of an item; its texts, whichever came; and those of one more. */
  readonly terminal: number;
  readonly item: Regex;
  rest: Regex | null;
}

/** Whether no more items come after so many, of so many bytes. */
export function isFull({ min }: CameItems, count: number, bytes: number): boolean {
  return count >= min && bytes > DISTINCT_BYTES_MAX;
}

/** Which items came where no two of a list may be the same. */
export class Distinct {
  readonly #regexes: Regexes;
  #known = new Map<string, CameItems>();
  #made = 0;
  /** By expression of items, whether it has more texts than ever come. */
  readonly #isEndless = new Map<Regex, boolean>();

  constructor(regexes: Regexes) {
    this.#regexes = regexes;
  }

  /** Nothing is one with what was found before. */
  forget(): void {
    this.#known = new Map();
  }

  /** Before the first of the items that `key` stands for, which match `item`. */
  none(key: string, terminal: number, item: Regex, min: number): CameItems {
    return this.#keep(key, { before: null, last: null, count: 0, min, bytes: 0, terminal, item, rest: item });
  }

  /** After one more. */
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

  /** Items that came and begin so. */
  begunSo(came: CameItems, text: string): string[] {
    const texts: string[] = [];
    for (let at: CameItems | null = came; at !== null; at = at.before)
      if (at.last !== null && at.last.length >= text.length && at.last.startsWith(text)) texts.push(at.last);
    return texts;
  }

  /** Whether an item is left that did not come. */
  hasRest(came: CameItems): boolean {
    const { item } = came;
    let isEndless = this.#isEndless.get(item);
    if (isEndless === undefined) {
      isEndless = hasTexts(this.#regexes, item, DISTINCT_ITEMS_MAX + 1);
      this.#isEndless.set(item, isEndless);
    }
    return isEndless || !this.#regexes.isEmpty(this.restOf(came));
  }

  /** Texts of an item that did not come. */
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

/** Key of a page, or of a piece of a state: equal keys mean equal contents. */
export type PageKey = string | number;

/** Index of a place: a buffer of a page's size in the host's memory. */
export type Place = number;

interface Entry {
  readonly key: PageKey;
  readonly place: Place;
  /** Parent: the entry of the page before it in its prompt; null: the table had none. */
  readonly before: Entry | null;
  /** Number of its children. */
  followers: number;
  /** Time of the last use, as a count of uses. */
  used: number;
  /** Copies in flight that need it. */
  holds: number;
  /** True once its contents are complete. */
  isReady: boolean;
}

/**
 * Places in the host's memory by the keys of their contents. It evicts the last page of the least recently used
 * prompt. So a prompt loses later pages before earlier ones (leaf-first LRU, as in the radix tree).
 */
export class PlaceTable {
  readonly #entries = new Map<PageKey, Entry>();
  /** Entries without followers, the least recently used first. */
  readonly #ends = new Set<Entry>();
  readonly #free: Place[];
  /** Parent of the entry evicted last, if it has not been used since: it is evicted next. */
  #next: Entry | null = null;
  #uses = 0;
  #dropped = 0;

  constructor(places: number) {
    this.#free = Array.from({ length: places }, (_, index) => places - 1 - index);
  }

  /** Number of entries. */
  get size(): number {
    return this.#entries.size;
  }

  /** Number of entries evicted for others so far. */
  get droppedTotal(): number {
    return this.#dropped;
  }

  /** True if it has a place, ready or not. */
  knows(key: PageKey): boolean {
    return this.#entries.has(key);
  }

  /** Returns the place of complete contents; null: there are none. */
  find(key: PageKey): Place | null {
    const entry = this.#entries.get(key);
    return entry?.isReady === true ? entry.place : null;
  }

  /**
   * Returns a held place for the entry that follows `before` in its prompt; null: copies in flight hold all places.
   * The caller fills it, then calls `ready` or `drop`.
   */
  take(key: PageKey, before: PageKey | null): Place | null {
    const last = before === null ? null : (this.#entries.get(before) ?? null);
    if (last !== null) last.holds += 1;
    const place = this.#free.pop() ?? this.#evict();
    if (last !== null) last.holds -= 1;
    if (place === null) return null;
    this.#uses += 1;
    const entry = { key, place, before: last, followers: 0, used: this.#uses, holds: 1, isReady: false };
    this.#entries.set(key, entry);
    this.#ends.add(entry);
    if (last !== null) {
      last.followers += 1;
      this.#ends.delete(last);
    }
    return place;
  }

  /** Records that the contents are complete, and ends the hold. */
  ready(key: PageKey): void {
    this.#entries.get(key)!.isReady = true;
    this.release(key);
  }

  hold(key: PageKey): void {
    this.#entries.get(key)!.holds += 1;
  }

  release(key: PageKey): void {
    this.#entries.get(key)!.holds -= 1;
  }

  /** Removes an entry whose contents could not be copied. */
  drop(key: PageKey): void {
    this.#remove(this.#entries.get(key)!);
  }

  /** Records a use of the prompt's entries in the table. */
  use(keys: Iterable<PageKey>): void {
    this.#uses += 1;
    for (const key of keys) {
      const entry = this.#entries.get(key);
      if (entry === undefined) continue;
      entry.used = this.#uses;
      if (this.#ends.delete(entry)) this.#ends.add(entry);
    }
  }

  #evict(): Place | null {
    const entry = this.#least();
    if (entry === null) return null;
    this.#dropped += 1;
    this.#remove(entry);
    return this.#free.pop()!;
  }

  #least(): Entry | null {
    const next = this.#next;
    if (next !== null && this.#ends.has(next) && next.holds === 0) return next;
    for (const entry of this.#ends) if (entry.holds === 0) return entry;
    return null;
  }

  #remove(entry: Entry): void {
    const { key, place, before, used } = entry;
    this.#entries.delete(key);
    this.#ends.delete(entry);
    this.#free.push(place);
    this.#next = null;
    if (before === null) return;
    before.followers -= 1;
    if (before.followers > 0 || this.#entries.get(before.key) !== before) return;
    this.#ends.add(before);
    if (before.used <= used) this.#next = before;
  }
}

/** Key of a page, or of a piece of a state: equal keys mean equal contents. */
export type PageKey = string | number;

/** Index of a place in the host's memory, of a page's size. */
export type Place = number;

interface Entry {
  readonly key: PageKey;
  readonly place: Place;
  /** Entry before it in its prompt; null: it was not there. */
  readonly before: Entry | null;
  /** Entries of which it is the one before. */
  followers: number;
  /** Time of the last use, as a count of uses. */
  used: number;
  /** Copies in flight that need it. */
  holds: number;
  /** True once its contents are there. */
  isReady: boolean;
}

/**
 * Places in the host's memory by the keys of what they hold. The least valuable one is dropped for another: the
 * end of the prompt that was used least recently. So a prompt loses what stands behind before what stands ahead.
 */
export class PlaceTable {
  readonly #entries = new Map<PageKey, Entry>();
  /** Entries without followers, the least recently used first. */
  readonly #ends = new Set<Entry>();
  readonly #free: Place[];
  /** Entry before the one that was dropped last, if it was not used since. */
  #next: Entry | null = null;
  #uses = 0;
  #dropped = 0;

  constructor(places: number) {
    this.#free = Array.from({ length: places }, (_, index) => places - 1 - index);
  }

  /** Number of entries, and of those that were dropped for others. */
  get size(): number {
    return this.#entries.size;
  }
  get droppedTotal(): number {
    return this.#dropped;
  }

  /** True if it has a place, ready or not. */
  knows(key: PageKey): boolean {
    return this.#entries.has(key);
  }

  /** Returns the place of contents that are there; null: they are not. */
  find(key: PageKey): Place | null {
    const entry = this.#entries.get(key);
    return entry?.isReady === true ? entry.place : null;
  }

  /**
   * Returns a place, held, for what follows `before` in its prompt; null: copies in flight need all. The caller
   * fills it, then calls `ready` or `drop`.
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

  /** Records that the contents are there, and lets go of the entry. */
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

  /** Takes an entry out whose contents did not come. */
  drop(key: PageKey): void {
    this.#remove(this.#entries.get(key)!);
  }

  /** Records a use of those of a prompt's entries that are there. */
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

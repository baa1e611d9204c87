import type { PageId, StateSlot } from "../core.ts";
import type { LoadDone, LowerTier, PagesOf, TierCosts } from "./lower-tier.ts";
import { type PageKey, type Place, PlaceTable } from "./place-table.ts";

/** Keys of pages and pieces. Prompts of different cache keys have different ones, except for public pages. */
export interface PageKeys {
  readonly pageTokens: number;
  idOf(prompt: PagesOf, page: number): PageKey;
  /** Key of a piece of the state after the prompt's first `end` pages. */
  pieceOf(prompt: PagesOf, end: number, piece: number): PageKey;
}

/** Copies from places to pages, and to a state slot. */
export interface CopyUp {
  readonly pages: readonly PageId[];
  /** Places of the pages, then of the pieces of the state. */
  readonly places: readonly Place[];
  /** Null: no state. */
  readonly slot: StateSlot | null;
}

/**
 * Port: places in the host's memory (pinned buffers of a page's size), and asynchronous copies between them and the
 * device while steps run.
 */
export interface HostMemory {
  /** Times and sizes, as measured. */
  readonly costs: TierCosts;
  readonly places: number;
  /** Copies on their way from the device at most. */
  readonly sendingMax: number;
  /** Begin copies of pages, or of pieces of a state. Later steps do not change what is copied. */
  sendPages(pages: readonly PageId[], places: readonly Place[]): void;
  sendPieces(slot: StateSlot, pieces: readonly number[], places: readonly Place[]): void;
  /** Calls `done` once, later, when all copies begun before have ended; `isValid`: false if the device failed. */
  settle(done: (isValid: boolean) => void): void;
  /** Copies to the device, and calls `done` once, later; `isValid`: false if the device failed. */
  copyUp(what: CopyUp, done: (isValid: boolean) => void): void;
}

/** Port: a slower store of the same pages and pieces (a disk), below the host's memory. */
export interface StoreBelow {
  readonly costs: Pick<TierCosts, "latencyMs" | "loadPageMs">;
  has(key: PageKey): boolean;
  /** Stores the contents of a place, which the caller keeps until `done`; false: it accepts no more now. */
  put(key: PageKey, place: Place, done: () => void): boolean;
  /** Reads entries into places, up to the first that is missing or damaged. Calls `done` once, later, with their number. */
  get(keys: readonly PageKey[], places: readonly Place[], done: (valid: number) => void): void;
}

/** Totals of pages and pieces: copied from the device, copied back, and evicted. */
export interface HostCounts {
  stored: number;
  read: number;
  dropped: number;
}

interface Load {
  readonly pages: readonly PageId[];
  readonly slot: StateSlot | null;
  /** Keys of the pages, then of the pieces of the state. */
  readonly wanted: readonly PageKey[];
  /** Places of the leading keys that are in memory, or are being read from below. */
  readonly places: Place[];
  /** Keys that are read from below, with their index in `wanted`. */
  readonly fromBelow: { readonly key: PageKey; readonly index: number }[];
  readonly done: LoadDone;
}

/**
 * Tier of pages in the host's memory. Copies run beside steps: lookups find a page once its copy has ended. With a
 * store below, the tier writes its entries there in order of arrival, as fast as the store accepts them (write-back).
 * A load of an entry that only the store has first reads it into a place.
 */
export class HostTier implements LowerTier {
  readonly #memory: HostMemory;
  readonly #keys: PageKeys;
  readonly #below: StoreBelow | null;
  readonly #table: PlaceTable;
  /** Keys of entries to write below. */
  readonly #unwritten = new Set<PageKey>();
  #sending = 0;
  #stored = 0;
  #read = 0;

  constructor(memory: HostMemory, keys: PageKeys, below: StoreBelow | null = null) {
    this.#memory = memory;
    this.#keys = keys;
    this.#below = below;
    this.#table = new PlaceTable(memory.places);
  }

  get costs(): TierCosts {
    return this.#memory.costs;
  }

  get counts(): HostCounts {
    return { stored: this.#stored, read: this.#read, dropped: this.#table.droppedTotal };
  }

  find(prompt: PagesOf, first: number): number {
    const end = Math.floor(prompt.tokens.length / this.#keys.pageTokens);
    let page = first;
    while (page < end && this.#has(this.#keys.idOf(prompt, page))) page += 1;
    return page;
  }

  findState(prompt: PagesOf, first: number, end: number): number {
    let at = end;
    while (at > first && !this.#piecesOf(prompt, at).every((key) => this.#has(key))) at -= 1;
    return at;
  }

  loadPageMs(prompt: PagesOf, first: number, end: number): number {
    const { loadPageMs } = this.costs;
    if (this.#below === null || end <= first) return loadPageMs;
    let pages = 0;
    for (let page = first; page < end; page += 1)
      if (this.#table.find(this.#keys.idOf(prompt, page)) === null) pages += 1;
    if (pages === 0) return loadPageMs;
    const { costs } = this.#below;
    return loadPageMs + (costs.latencyMs + pages * costs.loadPageMs) / (end - first);
  }

  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number {
    const keys = pages.map((_, index) => this.#keys.idOf(prompt, first + index));
    const before = first === 0 ? null : this.#keys.idOf(prompt, first - 1);
    return this.#store(keys, before, (fresh, places) => {
      const sent = fresh.map((index) => pages[index]!);
      this.#memory.sendPages(sent, places);
    });
  }

  storeState(prompt: PagesOf, end: number, slot: StateSlot, first: number, count: number): number {
    const pieces = Array.from({ length: count }, (_, index) => first + index);
    const keys = pieces.map((piece) => this.#keys.pieceOf(prompt, end, piece));
    const before =
      first === 0 ? this.#keys.idOf(prompt, end - 1) : this.#keys.pieceOf(prompt, end, first - 1);
    return this.#store(keys, before, (fresh, places) => {
      const sent = fresh.map((index) => pieces[index]!);
      this.#memory.sendPieces(slot, sent, places);
    });
  }

  load(
    prompt: PagesOf,
    first: number,
    pages: readonly PageId[],
    slot: StateSlot | null,
    done: LoadDone,
  ): void {
    const end = first + pages.length;
    const before = Array.from({ length: first }, (_, page) => this.#keys.idOf(prompt, page));
    const wanted = pages.map((_, index) => this.#keys.idOf(prompt, first + index));
    if (slot !== null) wanted.push(...this.#piecesOf(prompt, end));
    this.#table.use([...before, ...wanted]);
    const load: Load = { pages, slot, wanted, places: [], fromBelow: [], done };
    for (const [index, key] of wanted.entries()) {
      const place = this.#table.find(key);
      const taken = place ?? this.#takeMissing(key, wanted[index - 1] ?? before.at(-1) ?? null);
      if (taken === null) break;
      load.places.push(taken);
      if (place === null) load.fromBelow.push({ key, index });
      else this.#table.hold(key);
    }
    if (load.fromBelow.length === 0) this.#copyUp(load, 0);
    else this.#getBelow(load);
  }

  /** Reads the entries that a load lacks from below, and then copies all of them to the device. */
  #getBelow(load: Load): void {
    const { places, fromBelow } = load;
    const keys = fromBelow.map(({ key }) => key);
    const to = fromBelow.map(({ index }) => places[index]!);
    this.#below!.get(keys, to, (valid) => {
      for (const key of keys.slice(valid).toReversed()) this.#table.drop(key);
      this.#copyUp(load, valid);
    });
  }

  /** Copies a load's entries to the device, up to the first that could not be read. `read`: entries read from below. */
  #copyUp({ pages, slot, wanted, places, fromBelow, done }: Load, read: number): void {
    const valid = fromBelow[read]?.index ?? places.length;
    const hasState = slot !== null && valid === wanted.length;
    const validPages = Math.min(valid, pages.length);
    const copied = places.slice(0, hasState ? valid : validPages);
    const what = { pages: pages.slice(0, validPages), places: copied, slot: hasState ? slot : null };
    this.#memory.copyUp(what, (isValid) => {
      const below = new Map(fromBelow.map(({ key }, index) => [key, index]));
      for (const key of wanted.slice(0, places.length)) {
        const index = below.get(key);
        if (index === undefined) this.#table.release(key);
        else if (index < read) this.#table.ready(key);
      }
      if (isValid) this.#read += copied.length;
      const fromHost = validPages - fromBelow.slice(0, read).filter(({ index }) => index < validPages).length;
      if (isValid) done(validPages + (hasState ? 1 : 0), fromHost);
      else done(0, 0);
    });
  }

  /** Returns a place for an entry that only the store below has; null: it lacks it too, or no place is free. */
  #takeMissing(key: PageKey, before: PageKey | null): Place | null {
    if (this.#below?.has(key) !== true || this.#table.knows(key)) return null;
    return this.#table.take(key, before);
  }

  /**
   * Stores the missing ones of `keys`, which follow each other in a prompt, as far as there are places. Returns the
   * number of leading keys that are stored then, or being copied.
   */
  #store(
    keys: readonly PageKey[],
    before: PageKey | null,
    send: (fresh: readonly number[], places: readonly Place[]) => void,
  ): number {
    const fresh: number[] = [];
    const places: Place[] = [];
    let had = 0;
    for (; had < keys.length; had += 1) {
      const key = keys[had]!;
      if (this.#table.knows(key)) continue;
      if (this.#sending + fresh.length >= this.#memory.sendingMax) break;
      const place = this.#table.take(key, keys[had - 1] ?? before);
      if (place === null) break;
      fresh.push(had);
      places.push(place);
    }
    if (fresh.length === 0) return had;
    this.#sending += fresh.length;
    send(fresh, places);
    const sent = fresh.map((index) => keys[index]!);
    this.#memory.settle((isValid) => this.#settled(sent, isValid));
    return had;
  }

  #settled(keys: readonly PageKey[], isValid: boolean): void {
    this.#sending -= keys.length;
    if (!isValid) {
      for (const key of keys.toReversed()) this.#table.drop(key);
      return;
    }
    this.#stored += keys.length;
    for (const key of keys) {
      this.#table.ready(key);
      if (this.#below !== null) this.#unwritten.add(key);
    }
    if (this.#unwritten.size > 2 * this.#memory.places)
      for (const key of this.#unwritten) if (!this.#table.knows(key)) this.#unwritten.delete(key);
    this.#write();
  }

  /** Writes entries to the store below, as many as it accepts now. */
  #write(): void {
    for (const key of this.#unwritten) {
      const place = this.#table.find(key);
      if (place !== null && !this.#below!.has(key)) {
        const done = (): void => {
          this.#table.release(key);
          this.#write();
        };
        if (!this.#below!.put(key, place, done)) return;
        this.#table.hold(key);
      }
      this.#unwritten.delete(key);
    }
  }

  #has(key: PageKey): boolean {
    return this.#table.find(key) !== null || this.#below?.has(key) === true;
  }

  /** Keys of all pieces of the state after the prompt's first `end` pages. */
  #piecesOf(prompt: PagesOf, end: number): PageKey[] {
    const { statePages } = this.costs;
    return Array.from({ length: statePages }, (_, piece) => this.#keys.pieceOf(prompt, end, piece));
  }
}

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

/** Port: places in the host's memory, and copies between them and the device, beside steps. */
export interface HostMemory {
  /** Times and sizes, as measured. */
  readonly costs: TierCosts;
  readonly places: number;
  /** Copies on their way from the device at most. */
  readonly sendingMax: number;
  /** Begin copies of pages, or of pieces of a state. Later steps do not change what is copied. */
  sendPages(pages: readonly PageId[], places: readonly Place[]): void;
  sendPieces(slot: StateSlot, pieces: readonly number[], places: readonly Place[]): void;
  /** Calls `done` once, later, when all that was sent before is there; `isRight`: false if the device failed. */
  settle(done: (isRight: boolean) => void): void;
  /** Copies back, and calls `done` once, later; `isRight`: false if the device failed. */
  copyUp(what: CopyUp, done: (isRight: boolean) => void): void;
}

/** Port: a slower store of the same things, below the host's memory. */
export interface StoreBelow {
  readonly costs: Pick<TierCosts, "latencyMs" | "loadPageMs">;
  has(key: PageKey): boolean;
  /** Stores what is in a place, which stays there until `done`; false: it takes no more now. */
  put(key: PageKey, place: Place, done: () => void): boolean;
  /** Reads things into places, until one is not right. Calls `done` once, later, with how many are. */
  get(keys: readonly PageKey[], places: readonly Place[], done: (right: number) => void): void;
}

/** Pages and pieces copied from the device, and back, and dropped for others, so far. */
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
  /** Places of the leading ones that are there, or come from below. */
  readonly places: Place[];
  /** The ones among them that come from below, by their index among the wanted. */
  readonly fromBelow: { readonly key: PageKey; readonly index: number }[];
  readonly done: LoadDone;
}

/**
 * Tier of pages in the host's memory. Copies go beside steps: what is stored is there once the copies have
 * settled, and not found before. With a store below, what is there is written down in the order in which it came,
 * as fast as the store takes it; what only the store has comes up by way of a place.
 */
export class HostTier implements LowerTier {
  readonly #memory: HostMemory;
  readonly #keys: PageKeys;
  readonly #below: StoreBelow | null;
  readonly #table: PlaceTable;
  /** Keys of what is to be stored below. */
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

  /** Reads from below what a load lacks, and then copies them up. */
  #getBelow(load: Load): void {
    const { places, fromBelow } = load;
    const keys = fromBelow.map(({ key }) => key);
    const to = fromBelow.map(({ index }) => places[index]!);
    this.#below!.get(keys, to, (right) => {
      for (const key of keys.slice(right).toReversed()) this.#table.drop(key);
      this.#copyUp(load, right);
    });
  }

  /** Ends a load with its leading things up to the first that did not come from below. `read`: those that did. */
  #copyUp({ pages, slot, wanted, places, fromBelow, done }: Load, read: number): void {
    const right = fromBelow[read]?.index ?? places.length;
    const isWhole = slot !== null && right === wanted.length;
    const pagesRight = Math.min(right, pages.length);
    const copied = places.slice(0, isWhole ? right : pagesRight);
    const what = { pages: pages.slice(0, pagesRight), places: copied, slot: isWhole ? slot : null };
    this.#memory.copyUp(what, (isRight) => {
      const below = new Map(fromBelow.map(({ key }, index) => [key, index]));
      for (const key of wanted.slice(0, places.length)) {
        const index = below.get(key);
        if (index === undefined) this.#table.release(key);
        else if (index < read) this.#table.ready(key);
      }
      if (isRight) this.#read += copied.length;
      const fromHost = pagesRight - fromBelow.slice(0, read).filter(({ index }) => index < pagesRight).length;
      if (isRight) done(pagesRight + (isWhole ? 1 : 0), fromHost);
      else done(0, 0);
    });
  }

  /** Returns a place for what only the store below has; null: it has not, or there is no place. */
  #takeMissing(key: PageKey, before: PageKey | null): Place | null {
    if (this.#below?.has(key) !== true || this.#table.knows(key)) return null;
    return this.#table.take(key, before);
  }

  /**
   * Stores those of some keys, one after the other in a prompt, that are not there, as far as there are places.
   * Returns the number of leading ones that are there then, or on their way.
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
    this.#memory.settle((isRight) => this.#settled(sent, isRight));
    return had;
  }

  #settled(keys: readonly PageKey[], isRight: boolean): void {
    this.#sending -= keys.length;
    if (!isRight) {
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

  /** Stores below what is not there, as far as the store takes it now. */
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

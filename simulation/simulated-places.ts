import type { Clock } from "../base/clock.ts";
import {
  type CopyUp,
  type HostMemory,
  HostTier,
  type PageKeys,
  type StoreBelow,
} from "../scheduler/cache/host-tier.ts";
import type { LowerTier, PagesOf, TierCosts } from "../scheduler/cache/lower-tier.ts";
import { hashPrompt } from "../scheduler/cache/page-hash.ts";
import type { Place } from "../scheduler/cache/place-table.ts";
import type { PageId, StateSlot } from "../scheduler/core.ts";
import { type PageMemory, SimulatedTier, type TierSetup, wholeOf } from "./simulated-tier.ts";

/** Sizes and speeds of simulated KV places in host memory. */
export interface HostSetup {
  readonly pageBytes: number;
  readonly pageTokens: number;
  /** Pages that a recurrent state takes; absent: states are not stored. */
  readonly statePages?: number;
  readonly places: number;
  /** Speed of copies in each direction; both run at full speed at once. */
  readonly bytesPerMs: number;
  readonly latencyMs: number;
  /** Milliseconds that the engine's thread needs to begin the copy of a page. */
  readonly beginMs: number;
  readonly sendingMax: number;
}

/**
 * Host memory in virtual time. Stores page contents if `memory` (of a device with page contents) is given.
 */
class SimulatedPlaces<Contents> implements HostMemory {
  readonly costs: TierCosts;
  readonly places: number;
  readonly sendingMax: number;
  readonly #clock: Clock;
  readonly #memory: PageMemory<Contents> | null;
  readonly #contents = new Map<Place, Contents>();
  /** Times at which the copies to host memory, and back, have ended. */
  #downMs = 0;
  #upMs = 0;

  constructor(setup: HostSetup, clock: Clock, memory: PageMemory<Contents> | null) {
    const { pageBytes, statePages = 0, latencyMs, bytesPerMs, beginMs } = setup;
    this.places = setup.places;
    this.sendingMax = setup.sendingMax;
    this.#clock = clock;
    this.#memory = memory;
    const costs = { pageBytes, statePages, latencyMs, storePageMs: beginMs };
    this.costs = { ...costs, loadPageMs: pageBytes / bytesPerMs };
  }

  sendPages(pages: readonly PageId[], places: readonly Place[]): void {
    this.#send(places, (index) => this.#memory!.read(pages[index]!));
  }

  sendPieces(slot: StateSlot, _pieces: readonly number[], places: readonly Place[]): void {
    this.#send(places, () => this.#memory!.readState(slot));
  }

  settle(done: (isRight: boolean) => void): void {
    this.#clock.after(Math.max(0, this.#downMs - this.#clock.nowMs()), () => done(true));
  }

  copyUp({ pages, places, slot }: CopyUp, done: (isRight: boolean) => void): void {
    for (const page of pages) this.#memory?.spoil(page);
    if (slot !== null) this.#memory?.spoilState(slot);
    const { loadPageMs, latencyMs } = this.costs;
    this.#upMs = Math.max(this.#upMs, this.#clock.nowMs()) + places.length * loadPageMs;
    this.#clock.after(this.#upMs - this.#clock.nowMs() + latencyMs, () => {
      const contents = places.map((place) => this.#contents.get(place)!);
      for (const [index, page] of pages.entries()) this.#memory?.write(page, contents[index]!);
      if (slot !== null) this.#memory?.writeState(slot, wholeOf(contents.slice(pages.length)));
      done(true);
    });
  }

  read(place: Place): Contents | null {
    return this.#contents.get(place) ?? null;
  }

  write(place: Place, contents: Contents | null): void {
    if (contents !== null) this.#contents.set(place, contents);
  }

  #send(places: readonly Place[], contentsOf: (index: number) => Contents): void {
    this.#downMs = Math.max(this.#downMs, this.#clock.nowMs()) + places.length * this.costs.loadPageMs;
    if (this.#memory !== null)
      for (const [index, place] of places.entries()) this.#contents.set(place, contentsOf(index));
  }
}

class HashKeys implements PageKeys {
  readonly pageTokens: number;
  readonly #hashes = new WeakMap<PagesOf, Float64Array>();

  constructor(pageTokens: number) {
    this.pageTokens = pageTokens;
  }

  idOf(prompt: PagesOf, page: number): number {
    let hashes = this.#hashes.get(prompt);
    if (hashes === undefined) {
      const pages = Math.floor(prompt.tokens.length / this.pageTokens);
      hashes = hashPrompt(prompt.tokens, pages, this.pageTokens, prompt.sharing);
      this.#hashes.set(prompt, hashes);
    }
    return hashes[page]!;
  }

  pieceOf(prompt: PagesOf, end: number, piece: number): string {
    return `${this.idOf(prompt, end - 1)} ${piece}`;
  }
}

/** Lower KV tiers of a simulated engine: host memory, disk, or host memory above the disk; null: none. */
export function openTiers<Contents = never>(
  host: HostSetup | null,
  disk: TierSetup | null,
  clock: Clock,
  memory: PageMemory<Contents> | null = null,
): LowerTier | null {
  const below = disk === null ? null : new SimulatedTier(disk, clock, memory);
  if (host === null) return below;
  const places = new SimulatedPlaces(host, clock, memory);
  const store: StoreBelow | null =
    below === null
      ? null
      : {
          costs: below.costs,
          has: (key) => below.has(key),
          put: (key, place, done) => below.put(key, places.read(place), done),
          get: (keys, to, done) =>
            below.get(keys, (index, contents) => places.write(to[index]!, contents), done),
        };
  return new HostTier(places, new HashKeys(host.pageTokens), store);
}

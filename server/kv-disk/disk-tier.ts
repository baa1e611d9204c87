import { receiveMessageOnPort } from "node:worker_threads";
import type { StoreBelow } from "../../scheduler/cache/host-tier.ts";
import type { LoadDone, LowerTier, PagesOf, TierCosts } from "../../scheduler/cache/lower-tier.ts";
import type { Place } from "../../scheduler/cache/place-table.ts";
import type { PageId, StateSlot } from "../../scheduler/core.ts";
import { believed } from "./believed.ts";
import { secretFor } from "./folders.ts";
import { PageIds, type StoredId } from "./page-ids.ts";
import {
  type DiskAnswer,
  type DiskStart,
  type DiskTask,
  type KvDiskSetup,
  pieceAt,
  statePages,
  waitingPages,
} from "./protocol.ts";
import { makeSideWords, ring, stop } from "./side-thread.ts";
import type { StoreCounts } from "./store-counts.ts";

/** Assumed before the first transfers: bytes per ms of a load, bytes per ms of a store, and ms of latency. */
const LOAD_BYTES_PER_MS = 1e6;
const COPY_BYTES_PER_MS = 4e6;
const LATENCY_MS = 1;
/** Minimum pages of a load from which the time of a page is estimated. */
const MEASURED_PAGES_MIN = 4;
/** Stride in pages: a store marks every such page of the prefix before it as used. */
const USED_STEP = 16;
/** Longest wait for the thread's start. */
const OPEN_MS_MAX = 5000;

/** Copies pages or state pieces, given by index, to consecutive slots. */
type Copy = (memory: PageMemory, fresh: readonly number[], slots: Uint8Array) => void;

/** Memory of the device that holds the pages and states. */
export interface PageMemory {
  /** Library and handle, for the thread that writes pages. */
  readonly native: Pick<Extract<DiskTask, { kind: "attach" }>, "library" | "engine">;
  /** Copies pages to `bytes` before it returns. */
  readPages(pages: Int32Array, bytes: Uint8Array): void;
  /** Copies a part of a state, from byte `offset` on, to `bytes` before it returns. */
  readState(slot: StateSlot, offset: number, bytes: Uint8Array): void;
}

interface Job {
  /** `pages`: number of pages and state pieces. `whole`: the `right` of a load without any fault. */
  readonly pages: number;
  readonly whole: number;
  readonly startedMs: number;
  readonly done: (right: number) => void;
}

type Load = Extract<DiskTask, { kind: "load" }>;

/**
 * Tier of KV pages and states on disk, used from its engine's thread. A side thread does all input and output
 * (worker.ts). It writes loaded pages to the device itself, so neither thread waits for the other.
 */
export class DiskTier implements LowerTier, StoreBelow {
  readonly costs: { -readonly [Name in keyof TierCosts]: TierCosts[Name] };
  readonly #setup: KvDiskSetup;
  /** Computes the ids of pages and pieces, which are unique to this folder. */
  readonly ids: PageIds;
  readonly #bell: Int32Array<SharedArrayBuffer>;
  readonly #onCounts: (counts: Readonly<StoreCounts>) => void;
  readonly #port: MessagePort;
  readonly #words = makeSideWords();
  readonly #slots: Uint8Array;
  readonly #slotCount: number;
  readonly #stored = new Set<StoredId>();
  /** Pages and pieces that wait in slots to be written. */
  readonly #waiting = new Set<StoredId>();
  /** Pages and pieces that wait in host memory to be written, with their `done` callbacks. */
  readonly #inPlaces = new Map<StoredId, () => void>();
  readonly #jobs = new Map<number, Job>();
  #memory: PageMemory | null = null;
  #state: "opening" | "open" | "readOnly" | "failed" | "closed" = "opening";
  #slot = 0;
  #free: number;
  #nextJob = 0;

  /**
   * Starts the side thread, which opens the folder while the engine loads. It rings `doorbell` for each
   * reply.
   */
  constructor(
    setup: KvDiskSetup,
    engine: number,
    doorbell: SharedArrayBuffer,
    onCounts: (counts: Readonly<StoreCounts>) => void = () => {},
  ) {
    const { pageBytes } = setup;
    this.#bell = new Int32Array(doorbell);
    this.#onCounts = onCounts;
    this.#setup = setup;
    this.ids = new PageIds(setup.identity, setup.pageTokens, secretFor(setup.key, "ids"));
    this.costs = {
      pageBytes,
      statePages: statePages(setup),
      latencyMs: LATENCY_MS,
      loadPageMs: pageBytes / LOAD_BYTES_PER_MS,
      storePageMs: pageBytes / COPY_BYTES_PER_MS,
    };
    this.#slotCount = waitingPages(pageBytes);
    this.#free = this.#slotCount;
    const slots = new SharedArrayBuffer(this.#slotCount * pageBytes);
    this.#slots = new Uint8Array(slots);
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const worker = new Worker(setup.workerUrl, { name: `disk ${engine}` });
    const start: DiskStart = { setup, engine, port: port2, words: this.#words.buffer, slots, doorbell };
    worker.postMessage(start, [port2]);
  }

  /** Attaches the device that holds the pages, and waits up to OPEN_MS_MAX until the folder is open. */
  attach(memory: PageMemory): void {
    this.#memory = memory;
    this.#tell({ kind: "attach", ...memory.native });
    const untilMs = performance.now() + OPEN_MS_MAX;
    for (;;) {
      const rings = Atomics.load(this.#bell, 0);
      this.receive();
      const leftMs = untilMs - performance.now();
      if (this.#state !== "opening" || leftMs <= 0) return;
      Atomics.wait(this.#bell, 0, rings, leftMs);
    }
  }

  /** Handles the side thread's replies, and calls `done` of finished loads. */
  receive(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined || this.#state === "closed") break;
      this.#take(received.message as DiskAnswer);
    }
    if (this.#state !== "failed") return;
    for (const job of [...this.#jobs.keys()]) this.#finish(job, 0, 0);
    const written = [...this.#inPlaces.values()];
    this.#inPlaces.clear();
    for (const done of written) done();
  }

  has(id: StoredId): boolean {
    return this.#stored.has(id);
  }

  put(id: StoredId, place: Place, done: () => void): boolean {
    if (this.#state !== "open" || this.#inPlaces.size >= this.#slotCount) return false;
    this.#inPlaces.set(id, done);
    this.#tell({ kind: "storePlace", id, place });
    return true;
  }

  get(ids: readonly StoredId[], places: readonly Place[], done: (right: number) => void): void {
    this.#load(ids, places, "places", null, ids.length, done);
  }

  find(prompt: PagesOf, first: number): number {
    const end = Math.floor(prompt.tokens.length / this.#setup.pageTokens);
    let page = first;
    while (this.#stored.size > 0 && page < end && this.#stored.has(this.ids.idOf(prompt, page))) page += 1;
    return page;
  }

  findState(prompt: PagesOf, first: number, end: number): number {
    if (this.#stored.size === 0) return first;
    const { statePages } = this.costs;
    for (let at = end; at > first; at -= 1) {
      let piece = statePages;
      while (piece > 0 && this.#stored.has(this.ids.pieceOf(prompt, at, piece - 1))) piece -= 1;
      if (piece === 0) return at;
    }
    return first;
  }

  loadPageMs(): number {
    return this.costs.loadPageMs;
  }

  store(prompt: PagesOf, first: number, pages: readonly PageId[]): number {
    const copy: Copy = (memory, fresh, bytes) => {
      const run = new Int32Array(new ArrayBuffer(fresh.length * Int32Array.BYTES_PER_ELEMENT));
      for (const [index, at] of fresh.entries()) run[index] = pages[at]!;
      memory.readPages(run, bytes);
    };
    const idOf = (index: number): StoredId => this.ids.idOf(prompt, first + index);
    return this.#store(prompt, first, pages.length, idOf, copy);
  }

  storeState(prompt: PagesOf, end: number, slot: StateSlot, first: number, count: number): number {
    const { pageBytes } = this.#setup;
    const copy: Copy = (memory, fresh, bytes) => {
      for (const [index, at] of fresh.entries()) {
        const [from, to] = pieceAt(this.#setup, first + at);
        const piece = bytes.subarray(index * pageBytes, (index + 1) * pageBytes);
        memory.readState(slot, from, piece.subarray(0, to - from));
        piece.fill(0, to - from);
      }
    };
    const idOf = (index: number): StoredId => this.ids.pieceOf(prompt, end, first + index);
    return this.#store(prompt, end, count, idOf, copy);
  }

  /**
   * Queues those of `count` pages or pieces that are not stored yet, until the slots are full. Returns how
   * many, from the first on, are stored or queued. `before`: number of the prompt's pages before them.
   */
  #store(
    prompt: PagesOf,
    before: number,
    count: number,
    idOf: (index: number) => StoredId,
    copy: Copy,
  ): number {
    if (this.#state !== "open" || this.#memory === null) return 0;
    const ids: StoredId[] = [];
    const fresh: number[] = [];
    let had = 0;
    for (; had < count; had += 1) {
      const id = idOf(had);
      if (this.#stored.has(id) || this.#waiting.has(id)) continue;
      if (fresh.length === this.#free) break;
      ids.push(id);
      fresh.push(had);
    }
    if (fresh.length === 0) return had;
    const startedMs = performance.now();
    this.#copy(this.#memory, fresh, copy);
    const tookMs = performance.now() - startedMs;
    this.costs.storePageMs = believed(this.costs.storePageMs, tookMs / fresh.length);
    for (const id of ids) this.#waiting.add(id);
    const used: StoredId[] = [];
    for (let page = 0; page < before; page += USED_STEP) used.push(this.ids.idOf(prompt, page));
    this.#tell({ kind: "store", ids, used });
    return had;
  }

  load(
    prompt: PagesOf,
    first: number,
    pages: readonly PageId[],
    slot: StateSlot | null,
    done: LoadDone,
  ): void {
    const ids = pages.map((_, index) => this.ids.idOf(prompt, first + index));
    const count = slot === null ? 0 : this.costs.statePages;
    const end = first + pages.length;
    const pieces = Array.from({ length: count }, (_, piece) => this.ids.pieceOf(prompt, end, piece));
    const state = slot === null ? null : { slot, ids: pieces };
    this.#load(ids, pages, "pages", state, pages.length + (slot === null ? 0 : 1), (right) => done(right, 0));
  }

  /**
   * Loads to device pages or host places, and maybe a state. `whole`: value that `done` gets if everything is
   * right.
   */
  #load(
    ids: readonly StoredId[],
    to: readonly number[],
    kind: Load["to"],
    state: Load["state"],
    whole: number,
    done: (right: number) => void,
  ): void {
    const job = this.#nextJob++;
    const pages = ids.length + (state?.ids.length ?? 0);
    this.#jobs.set(job, { pages, whole, startedMs: performance.now(), done });
    this.#tell({ kind: "load", job, ids, to: kind, pages: Int32Array.from(to), state });
    // The thread has failed: the bell makes the next turn end this load.
    if (this.#state === "failed") Atomics.add(this.#bell, 0, 1);
  }

  /**
   * Ends the side thread, which writes to no page of the device from then on. Call it before the device is
   * closed. Calls no `done` any more.
   */
  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#jobs.clear();
    stop(this.#words); // releases the folder's lock, which a replacement needs
    this.#port.close();
  }

  #take(answer: DiskAnswer): void {
    switch (answer.kind) {
      case "opened":
        for (const id of answer.ids) this.#stored.add(id);
        this.#state = answer.isReadOnly ? "readOnly" : "open";
        return;
      case "stored": {
        if (answer.isStored) this.#stored.add(answer.id);
        const done = this.#inPlaces.get(answer.id);
        if (this.#inPlaces.delete(answer.id)) done!();
        else if (this.#waiting.delete(answer.id)) this.#free += 1;
        return;
      }
      case "gone":
        for (const id of answer.ids) this.#stored.delete(id);
        return;
      case "counted":
        this.#onCounts(answer.counts);
        return;
      case "loaded":
        this.#finish(answer.job, answer.right, answer.tookMs);
        return;
      case "failed":
        this.#state = "failed";
        this.#stored.clear();
    }
  }

  #finish(number: number, right: number, tookMs: number): void {
    const job = this.#jobs.get(number);
    if (job === undefined) return;
    this.#jobs.delete(number);
    if (right === job.whole && job.pages >= MEASURED_PAGES_MIN) {
      this.costs.loadPageMs = believed(this.costs.loadPageMs, tookMs / job.pages);
      this.costs.latencyMs = believed(this.costs.latencyMs, performance.now() - job.startedMs - tookMs);
    }
    job.done(right);
  }

  /**
   * Copies pages or pieces, given by index, to the next free slots of the ring, in two runs if it wraps
   * around.
   */
  #copy(memory: PageMemory, fresh: readonly number[], copy: Copy): void {
    const { pageBytes } = this.#setup;
    for (let done = 0; done < fresh.length; ) {
      const count = Math.min(fresh.length - done, this.#slotCount - this.#slot);
      const at = this.#slot * pageBytes;
      copy(memory, fresh.slice(done, done + count), this.#slots.subarray(at, at + count * pageBytes));
      this.#slot = (this.#slot + count) % this.#slotCount;
      this.#free -= count;
      done += count;
    }
  }

  #tell(task: DiskTask): void {
    if (this.#state === "closed") return;
    this.#port.postMessage(task);
    ring(this.#words);
  }
}

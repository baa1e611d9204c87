import { receiveMessageOnPort } from "node:worker_threads";
import type { LoadDone, LowerTier, PagesOf, TierCosts } from "../../scheduler/cache/lower-tier.ts";
import type { PageId, StateSlot } from "../../scheduler/core.ts";
import { secretFor } from "./folders.ts";
import { PageIds, type StoredId } from "./page-ids.ts";
import {
  DISK_ENDED,
  DISK_GATE,
  DISK_RINGS,
  DISK_STOPPED,
  DISK_WORDS,
  type DiskAnswer,
  type DiskStart,
  type DiskTask,
  GATE_OPEN,
  GATE_SHUT,
  type KvDiskSetup,
  pieceAt,
  statePages,
  waitingPages,
} from "./protocol.ts";
import type { StoreCounts } from "./store-counts.ts";

/** Bytes a second that are assumed before the first load, and the first store. */
const LOAD_BYTES_PER_MS = 1e6;
const COPY_BYTES_PER_MS = 4e6;
const LATENCY_MS = 1;
/**
 * Weights of a measurement that is less, or more, than was believed, and how many times as much it may be at most.
 * A busy machine interrupts some, and too high a price would end the loads and stores that correct it.
 */
const LESS = 0.5;
const MORE = 0.05;
const MORE_MAX = 2;
/** Fewest pages of a load that tell the time of a page. */
const MEASURED_PAGES_MIN = 4;
/** Distance of the pages, before those that are stored, that count as used. */
const USED_STEP = 16;
/** Longest waits for the thread's start and end. */
const OPEN_MS_MAX = 5000;
const CLOSE_MS_MAX = 5000;

/** Copies things of a store, by their indexes, to consecutive slots. */
type Copy = (memory: PageMemory, fresh: readonly number[], slots: Uint8Array) => void;

/** Memory of the device that holds the pages and states. */
export interface PageMemory {
  /** Library and handle, for the thread that writes pages. */
  readonly native: Pick<Extract<DiskTask, { kind: "attach" }>, "library" | "engine">;
  /** Copies pages to `bytes` at once. */
  readPages(pages: Int32Array, bytes: Uint8Array): void;
  /** Copies a part of a state from byte `offset` on to `bytes` at once. */
  readState(slot: StateSlot, offset: number, bytes: Uint8Array): void;
}

interface Job {
  /** Pages and pieces, and the `right` of a load that is right as a whole. */
  readonly pages: number;
  readonly whole: number;
  readonly startedMs: number;
  readonly done: LoadDone;
}

/**
 * Tier of KV pages and states on disk, on its engine's thread. A thread of its own does all input and output
 * (worker.ts). It writes loaded pages to the device itself, so neither waits for the other.
 */
export class DiskTier implements LowerTier {
  readonly costs: { -readonly [Name in keyof TierCosts]: TierCosts[Name] };
  readonly #setup: KvDiskSetup;
  readonly #ids: PageIds;
  readonly #bell: Int32Array<SharedArrayBuffer>;
  readonly #onCounts: (counts: Readonly<StoreCounts>) => void;
  readonly #port: MessagePort;
  readonly #words: Int32Array<SharedArrayBuffer>;
  readonly #slots: Uint8Array;
  readonly #slotCount: number;
  readonly #stored = new Set<StoredId>();
  /** Pages that wait in slots. */
  readonly #waiting = new Set<StoredId>();
  readonly #jobs = new Map<number, Job>();
  #memory: PageMemory | null = null;
  #state: "opening" | "open" | "readOnly" | "failed" | "closed" = "opening";
  #slot = 0;
  #free: number;
  #nextJob = 0;

  /** Starts the thread, which opens the folder while the engine loads. It rings `doorbell` for each answer. */
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
    this.#ids = new PageIds(setup.identity, setup.pageTokens, secretFor(setup.key, "ids"));
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
    const words = new SharedArrayBuffer(DISK_WORDS * Int32Array.BYTES_PER_ELEMENT);
    this.#words = new Int32Array(words);
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const worker = new Worker(setup.workerUrl, { name: `disk ${engine}` });
    const start: DiskStart = { setup, engine, port: port2, words, slots, doorbell };
    worker.postMessage(start, [port2]);
  }

  /** Names the memory of the pages, and waits a while for the folder to be open. */
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

  /** Takes the thread's answers, and calls `done` of finished loads. */
  receive(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined || this.#state === "closed") break;
      this.#take(received.message as DiskAnswer);
    }
    if (this.#state === "failed") for (const job of [...this.#jobs.keys()]) this.#finish(job, 0, 0);
  }

  find(prompt: PagesOf, first: number): number {
    const end = Math.floor(prompt.tokens.length / this.#setup.pageTokens);
    let page = first;
    while (this.#stored.size > 0 && page < end && this.#stored.has(this.#ids.idOf(prompt, page))) page += 1;
    return page;
  }

  findState(prompt: PagesOf, first: number, end: number): number {
    if (this.#stored.size === 0) return first;
    const { statePages } = this.costs;
    for (let at = end; at > first; at -= 1) {
      let piece = statePages;
      while (piece > 0 && this.#stored.has(this.#ids.pieceOf(prompt, at, piece - 1))) piece -= 1;
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
    const idOf = (index: number): StoredId => this.#ids.idOf(prompt, first + index);
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
    const idOf = (index: number): StoredId => this.#ids.pieceOf(prompt, end, first + index);
    return this.#store(prompt, end, count, idOf, copy);
  }

  /** Stores those of `count` things that are not there yet, as far as there are slots. `before`: pages before them. */
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
    for (let page = 0; page < before; page += USED_STEP) used.push(this.#ids.idOf(prompt, page));
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
    const job = this.#nextJob++;
    const ids = pages.map((_, index) => this.#ids.idOf(prompt, first + index));
    const count = slot === null ? 0 : this.costs.statePages;
    const end = first + pages.length;
    const pieces = Array.from({ length: count }, (_, piece) => this.#ids.pieceOf(prompt, end, piece));
    const whole = pages.length + (slot === null ? 0 : 1);
    this.#jobs.set(job, { pages: pages.length + count, whole, startedMs: performance.now(), done });
    const state = slot === null ? null : { slot, ids: pieces };
    this.#tell({ kind: "load", job, ids, pages: Int32Array.from(pages), state });
    // Without a thread the next turn ends the load.
    if (this.#state === "failed") Atomics.add(this.#bell, 0, 1);
  }

  /**
   * Ends the thread, which writes no page of the device from now on. Call it before the device is closed. No
   * `done` is called any more.
   */
  close(): void {
    if (this.#state === "closed") return;
    this.#state = "closed";
    this.#jobs.clear();
    Atomics.store(this.#words, DISK_STOPPED, 1);
    this.#ring();
    for (;;) {
      const gate = Atomics.compareExchange(this.#words, DISK_GATE, GATE_OPEN, GATE_SHUT);
      if (gate !== GATE_OPEN) Atomics.wait(this.#words, DISK_GATE, gate, CLOSE_MS_MAX);
      else break;
    }
    Atomics.wait(this.#words, DISK_ENDED, 0, CLOSE_MS_MAX); // a replacement needs the lock of the folder
    this.#port.close();
  }

  #take(answer: DiskAnswer): void {
    switch (answer.kind) {
      case "opened":
        for (const id of answer.ids) this.#stored.add(id);
        this.#state = answer.isReadOnly ? "readOnly" : "open";
        return;
      case "stored":
        this.#waiting.delete(answer.id);
        this.#free += 1;
        if (answer.isStored) this.#stored.add(answer.id);
        return;
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
    job.done(right, 0);
  }

  /** Copies things by their indexes to the next free slots, in at most two runs of the ring. */
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
    this.#ring();
  }

  #ring(): void {
    Atomics.add(this.#words, DISK_RINGS, 1);
    Atomics.notify(this.#words, DISK_RINGS);
  }
}

function believed(before: number, latest: number): number {
  if (latest < before) return before + LESS * (latest - before);
  return before + MORE * (Math.min(latest, MORE_MAX * before) - before);
}

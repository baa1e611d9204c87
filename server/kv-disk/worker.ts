/** Entry of the thread that reads and writes an engine's pages on disk. It never returns to its event loop. */
import { receiveMessageOnPort } from "node:worker_threads";
import { type EngineHandle, type NativeLibrary, openLibrary } from "../../gpu/native.ts";
import { engineFolder, noteModel, secretFor, shareOf } from "./folders.ts";
import { PageStore } from "./page-store.ts";
import { type DiskAnswer, type DiskStart, type DiskTask, pieceAt } from "./protocol.ts";
import { callEngine, ended, isStopped, RINGS, ringBell, type SideWords } from "./side-thread.ts";
import type { StoreCounts } from "./store-counts.ts";

declare const self: Worker;

/** Maximum time between two reports of the counts while the thread is busy. */
const COUNT_MS = 1000;
/** Interval of attempts to become the folder's writer: no event tells when its lock is released. */
const RETRY_MS = 1000;

self.onmessage = ({ data }: MessageEvent<DiskStart>) => {
  const words = new Int32Array(data.words) as SideWords;
  try {
    new DiskThread(data, words).run();
  } catch (error) {
    say(`the KV cache on disk is not used: ${error instanceof Error ? error.message : String(error)}`);
    tell(data, { kind: "failed" });
  }
  ended(words);
  process.exit(0); // ends this thread only
};

/** Engine whose pages and states are written. */
interface DeviceMemory {
  readonly library: NativeLibrary;
  readonly engine: EngineHandle;
}

/** A page or piece to be written, from a place of host memory or from the next slot. */
interface Waiting {
  readonly id: string;
  readonly place: number | null;
}

type Task<Kind extends DiskTask["kind"]> = Extract<DiskTask, { kind: Kind }>;

class DiskThread {
  readonly #start: DiskStart;
  readonly #words: SideWords;
  readonly #slots: Uint8Array;
  readonly #page: Uint8Array;
  readonly #pageId = new Int32Array(new ArrayBuffer(4));
  readonly #store: PageStore;
  readonly #loads: Task<"load">[] = [];
  readonly #stores: Waiting[] = [];
  #slot = 0;
  #counted: Readonly<StoreCounts>;
  #countedMs = 0;
  #memory: DeviceMemory | null = null;

  constructor(start: DiskStart, words: SideWords) {
    const { setup, engine } = start;
    this.#start = start;
    this.#words = words;
    this.#slots = new Uint8Array(start.slots);
    this.#page = new Uint8Array(new ArrayBuffer(setup.pageBytes));
    const bytesMax = shareOf(setup) / setup.engines;
    noteModel(setup);
    this.#store = new PageStore({
      folder: engineFolder(setup, engine),
      identity: setup.identity,
      pageBytes: setup.pageBytes,
      bytesMax,
      secret: secretFor(setup.key, "pages"),
      say,
    });
    this.#counted = { ...this.#store.counts };
  }

  /** Runs tasks until the engine's thread stops it: loads first, because a prompt waits for them. */
  run(): void {
    const store = this.#store;
    store.takeGone();
    this.#opened();
    for (;;) {
      const rings = Atomics.load(this.#words, RINGS);
      this.#receive();
      if (isStopped(this.#words)) break;
      const load = this.#loads.shift();
      if (load !== undefined) this.#load(load);
      else if (this.#stores.length > 0) this.#storeOne();
      else {
        this.#count();
        Atomics.wait(this.#words, RINGS, rings, store.isReadOnly ? RETRY_MS : Number.POSITIVE_INFINITY);
        if (store.isReadOnly && store.tryWrite()) this.#opened();
      }
      if (performance.now() - this.#countedMs > COUNT_MS) this.#count();
      const gone = store.takeGone();
      if (gone.length > 0) tell(this.#start, { kind: "gone", ids: gone });
    }
    while (this.#stores.length > 0) this.#storeOne(); // their pages are already in slots
    store.close();
  }

  #opened(): void {
    const { isReadOnly } = this.#store;
    tell(this.#start, { kind: "opened", ids: [...this.#store.ids()], isReadOnly });
  }

  /** Reports the counts since the last report. */
  #count(): void {
    this.#countedMs = performance.now();
    const now = { ...this.#store.counts };
    const names = Object.keys(now) as (keyof StoreCounts)[];
    const entries = names.map((name) => [name, now[name] - this.#counted[name]] as const);
    this.#counted = now;
    if (entries.every(([, count]) => count === 0)) return;
    tell(this.#start, { kind: "counted", counts: Object.fromEntries(entries) as unknown as StoreCounts });
  }

  #receive(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#start.port);
      if (received === undefined) return;
      const task = received.message as DiskTask;
      if (task.kind === "load") this.#loads.push(task);
      else if (task.kind === "store") {
        this.#store.touch(task.used);
        this.#stores.push(...task.ids.map((id) => ({ id, place: null })));
      } else if (task.kind === "storePlace") this.#stores.push(task);
      else this.#memory = { library: openLibrary(task.library), engine: task.engine };
    }
  }

  #storeOne(): void {
    const { id, place } = this.#stores.shift()!;
    const isStored = place === null ? this.#storeSlot(id) : this.#storePlace(id, place);
    tell(this.#start, { kind: "stored", id, isStored });
  }

  #storeSlot(id: string): boolean {
    const { pageBytes } = this.#start.setup;
    const at = this.#slot * pageBytes;
    this.#slot = (this.#slot + 1) % (this.#slots.length / pageBytes);
    return this.#store.put(id, this.#slots.subarray(at, at + pageBytes));
  }

  #storePlace(id: string, place: number): boolean {
    return (
      this.#call(({ library, engine }) => library.readPlace(engine, place, this.#page)) &&
      this.#store.put(id, this.#page)
    );
  }

  #load({ job, ids, to, pages, state }: Task<"load">): void {
    const startedMs = performance.now();
    let right = 0;
    while (right < ids.length && this.#loadPage(ids[right]!, to, pages[right]!)) right += 1;
    const isStateRight = (): boolean =>
      state?.ids.every((id, piece) => this.#loadPiece(id, state.slot, piece)) === true;
    if (right === ids.length && isStateRight()) right += 1;
    tell(this.#start, { kind: "loaded", job, right, tookMs: performance.now() - startedMs });
  }

  #loadPage(id: string, to: Task<"load">["to"], page: number): boolean {
    if (isStopped(this.#words)) return false;
    if (to === "places")
      return this.#loadOne(id, ({ library, engine }) => library.writePlace(engine, page, this.#page));
    this.#pageId[0] = page;
    return this.#loadOne(id, ({ library, engine }) => library.writePages(engine, this.#pageId, this.#page));
  }

  #loadPiece(id: string, slot: number, piece: number): boolean {
    const [from, end] = pieceAt(this.#start.setup, piece);
    return this.#loadOne(id, ({ library, engine }) =>
      library.writeState(engine, slot, from, this.#page.subarray(0, end - from)),
    );
  }

  /** Reads a page or a piece, and calls `write` unless the device is closing. */
  #loadOne(id: string, write: (memory: DeviceMemory) => void): boolean {
    return this.#store.get(id, this.#page) && this.#call(write);
  }

  #call(call: (memory: DeviceMemory) => void): boolean {
    const memory = this.#memory;
    return memory !== null && callEngine(this.#words, () => call(memory));
  }
}

function tell({ port, doorbell }: DiskStart, answer: DiskAnswer): void {
  port.postMessage(answer);
  ringBell(doorbell);
}

function say(sentence: string): void {
  process.stderr.write(`KV cache on disk: ${sentence}.\n`);
}

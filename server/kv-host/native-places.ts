import { receiveMessageOnPort } from "node:worker_threads";
import type { CopyUp, HostMemory } from "../../scheduler/cache/host-tier.ts";
import type { TierCosts } from "../../scheduler/cache/lower-tier.ts";
import type { Place } from "../../scheduler/cache/place-table.ts";
import type { PageId, StateSlot } from "../../scheduler/core.ts";
import { believed } from "../kv-disk/believed.ts";
import { pieceAt, statePages } from "../kv-disk/protocol.ts";
import { makeSideWords, ring, stop } from "../kv-disk/side-thread.ts";
import type { HostAnswer, HostStart, HostTask, KvHostSetup } from "./protocol.ts";

/**
 * Assumed before the first copies: bytes per ms of a load, ms to begin the copy of a page, and ms of latency.
 */
const LOAD_BYTES_PER_MS = 10e6;
const BEGIN_MS = 0.01;
const LATENCY_MS = 0.2;
/** Maximum bytes of copies in flight, and the pages that are allowed in any case. */
const SENDING_BYTES_MAX = 128 * 2 ** 20;
const SENDING_PAGES_MIN = 4;
/** Minimum pages of a load from which the time of a page is estimated. */
const MEASURED_PAGES_MIN = 4;

/** A GPU engine's memory, whose pages and states are copied. */
export interface PlaceMemory {
  /** Library and handle, for the thread that waits for copies. */
  readonly native: Pick<Extract<HostTask, { kind: "attach" }>, "library" | "engine">;
  openPlaces(count: number): void;
  /** Begin copies on the device's stream, ordered before any later step that changes their sources. */
  sendPages(pages: Int32Array, places: Int32Array): void;
  sendState(slot: StateSlot, offset: number, size: number, place: Place): void;
}

interface Job {
  /** Pages and state pieces of a fetch; 0 for a task that waits for earlier sends. */
  readonly pages: number;
  readonly startedMs: number;
  readonly done: (isRight: boolean) => void;
}

/**
 * Places for KV pages in pinned host memory, used from the engine's thread. Copies begin here; a side thread
 * waits for them, so that no step does.
 */
export class NativePlaces implements HostMemory {
  readonly costs: { -readonly [Name in keyof TierCosts]: TierCosts[Name] };
  readonly places: number;
  readonly sendingMax: number;
  readonly #setup: KvHostSetup;
  readonly #port: MessagePort;
  readonly #words = makeSideWords();
  readonly #jobs = new Map<number, Job>();
  #memory: PlaceMemory | null = null;
  #nextJob = 0;
  #isOpen = true;

  /** Starts the side thread, which rings `doorbell` for each reply. */
  constructor(setup: KvHostSetup, engine: number, doorbell: SharedArrayBuffer) {
    const { pageBytes } = setup;
    this.#setup = setup;
    this.places = setup.places;
    this.sendingMax = Math.max(SENDING_PAGES_MIN, Math.floor(SENDING_BYTES_MAX / pageBytes));
    this.costs = {
      pageBytes,
      statePages: statePages(setup),
      latencyMs: LATENCY_MS,
      loadPageMs: pageBytes / LOAD_BYTES_PER_MS,
      storePageMs: BEGIN_MS,
    };
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    const worker = new Worker(setup.workerUrl, { name: `host ${engine}` });
    const start: HostStart = { setup, port: port2, words: this.#words.buffer, doorbell };
    worker.postMessage(start, [port2]);
  }

  /** Attaches the engine whose pages are copied, and allocates the places. Throws NativeError. */
  attach(memory: PlaceMemory): void {
    memory.openPlaces(this.places);
    this.#memory = memory;
    this.#tell({ kind: "attach", ...memory.native });
  }

  sendPages(pages: readonly PageId[], places: readonly Place[]): void {
    this.#send(pages.length, (memory) => memory.sendPages(Int32Array.from(pages), Int32Array.from(places)));
  }

  sendPieces(slot: StateSlot, pieces: readonly number[], places: readonly Place[]): void {
    this.#send(pieces.length, (memory) => {
      for (const [index, piece] of pieces.entries()) {
        const [from, end] = pieceAt(this.#setup, piece);
        memory.sendState(slot, from, end - from, places[index]!);
      }
    });
  }

  settle(done: (isRight: boolean) => void): void {
    this.#tell({ kind: "settle", job: this.#begin(0, done) });
  }

  copyUp({ pages, places, slot }: CopyUp, done: (isRight: boolean) => void): void {
    const job = this.#begin(places.length, done);
    this.#tell({ kind: "fetch", job, pages: Int32Array.from(pages), places: Int32Array.from(places), slot });
  }

  /** Handles the side thread's replies, and calls their `done`. */
  receive(): void {
    while (this.#isOpen) {
      const received = receiveMessageOnPort(this.#port);
      if (received === undefined) return;
      this.#take(received.message as HostAnswer);
    }
  }

  /** Ends the side thread. Call it before the device is closed. Calls no `done` any more. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#jobs.clear();
    stop(this.#words);
    this.#port.close();
  }

  #send(count: number, send: (memory: PlaceMemory) => void): void {
    const startedMs = performance.now();
    send(this.#memory!);
    this.costs.storePageMs = believed(this.costs.storePageMs, (performance.now() - startedMs) / count);
  }

  #begin(pages: number, done: (isRight: boolean) => void): number {
    const job = this.#nextJob++;
    this.#jobs.set(job, { pages, startedMs: performance.now(), done });
    return job;
  }

  #take({ job: number, isRight, tookMs }: HostAnswer): void {
    const job = this.#jobs.get(number)!;
    this.#jobs.delete(number);
    if (isRight && job.pages >= MEASURED_PAGES_MIN) {
      this.costs.loadPageMs = believed(this.costs.loadPageMs, tookMs / job.pages);
      this.costs.latencyMs = believed(this.costs.latencyMs, performance.now() - job.startedMs - tookMs);
    }
    job.done(isRight);
  }

  #tell(task: HostTask): void {
    if (!this.#isOpen) return;
    this.#port.postMessage(task);
    ring(this.#words);
  }
}

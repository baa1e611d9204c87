/**
 * Entry of the thread that waits for copies between host memory and a GPU. It never returns to its event
 * loop.
 */
import { receiveMessageOnPort } from "node:worker_threads";
import { type EngineHandle, type NativeLibrary, openLibrary } from "../../gpu/native.ts";
import { pieceAt } from "../kv-disk/protocol.ts";
import { callEngine, ended, isStopped, RINGS, ringBell, type SideWords } from "../kv-disk/side-thread.ts";
import type { HostAnswer, HostStart, HostTask } from "./protocol.ts";

declare const self: Worker;

/** Maximum pages of a copy call; the thread can be stopped between calls. */
const CALL_PAGES_MAX = 64;

type Fetch = Extract<HostTask, { kind: "fetch" }>;

self.onmessage = ({ data }: MessageEvent<HostStart>) => {
  const words = new Int32Array(data.words) as SideWords;
  try {
    new HostThread(data, words).run();
  } finally {
    ended(words);
  }
  process.exit(0); // ends this thread only
};

class HostThread {
  readonly #start: HostStart;
  readonly #words: SideWords;
  readonly #fetches: Fetch[] = [];
  readonly #settles: number[] = [];
  #memory: { readonly library: NativeLibrary; readonly engine: EngineHandle } | null = null;

  constructor(start: HostStart, words: SideWords) {
    this.#start = start;
    this.#words = words;
  }

  /** Runs tasks until it is stopped: fetches first, because a prompt waits for them. */
  run(): void {
    for (;;) {
      const rings = Atomics.load(this.#words, RINGS);
      this.#receive();
      if (isStopped(this.#words)) return;
      const fetch = this.#fetches.shift();
      const settle = fetch === undefined ? this.#settles.shift() : undefined;
      if (fetch !== undefined) this.#answer(fetch.job, () => this.#fetch(fetch));
      else if (settle !== undefined)
        this.#answer(settle, () => this.#call((library, engine) => library.waitSent(engine)));
      else Atomics.wait(this.#words, RINGS, rings);
    }
  }

  #receive(): void {
    for (;;) {
      const received = receiveMessageOnPort(this.#start.port);
      if (received === undefined) return;
      const task = received.message as HostTask;
      if (task.kind === "fetch") this.#fetches.push(task);
      else if (task.kind === "settle") this.#settles.push(task.job);
      else this.#memory = { library: openLibrary(task.library), engine: task.engine };
    }
  }

  #answer(job: number, work: () => boolean): void {
    const startedMs = performance.now();
    const isRight = work();
    const answer: HostAnswer = { job, isRight, tookMs: performance.now() - startedMs };
    this.#start.port.postMessage(answer);
    ringBell(this.#start.doorbell);
  }

  #fetch({ pages, places, slot }: Fetch): boolean {
    for (let from = 0; from < pages.length; from += CALL_PAGES_MAX) {
      if (isStopped(this.#words)) return false;
      const to = from + CALL_PAGES_MAX;
      const [some, their] = [pages.slice(from, to), places.slice(from, to)];
      if (!this.#call((library, engine) => library.fetchPages(engine, some, their))) return false;
    }
    if (slot === null) return true;
    return places.slice(pages.length).every((place, piece) => {
      const [from, end] = pieceAt(this.#start.setup, piece);
      return this.#call((library, engine) => library.fetchState(engine, slot, from, end - from, place));
    });
  }

  #call(call: (library: NativeLibrary, engine: EngineHandle) => void): boolean {
    const memory = this.#memory;
    return memory !== null && callEngine(this.#words, () => call(memory.library, memory.engine));
  }
}

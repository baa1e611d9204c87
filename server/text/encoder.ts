import { availableParallelism } from "node:os";
import type { TokenId } from "../../scheduler/core.ts";
import type { RenderedPrompt } from "./control-text.ts";
import type { EncodeOptions, Tokenizer } from "./tokenizer.ts";

/**
 * Encodes without holding up the thread that serves HTTP: short texts at once, long ones on threads with tokenizers of their own,
 * which start when texts come and none is free. All give the same tokens.
 */

export interface EncoderSettings {
  /** Threads, at most. */
  readonly threads: number;
  /** Longer texts, in UTF-16 units, go to a thread. */
  readonly inlineUnitsMax: number;
  /** Texts that wait for a thread, at most. */
  readonly waitingMax: number;
  /** Threads run when no other wants the processor, and end when there has been no text for so long. null: neither. */
  readonly idleMs: number | null;
}

/** For requests: what is not handed to a thread takes about 2 ms. */
const forRequests: EncoderSettings = { threads: 1, inlineUnitsMax: 8192, waitingMax: 64, idleMs: null };

/** For jobs: every core, and no answer is awaited. Jobs themselves limit what waits. */
const forJobs: EncoderSettings = {
  threads: availableParallelism(),
  inlineUnitsMax: 0,
  waitingMax: Number.POSITIVE_INFINITY,
  idleMs: 10_000,
};

/** Too many long texts wait. */
export class EncoderBusyError extends Error {
  override readonly name = "EncoderBusyError";
}

/** What to encode. */
export type EncodeJob =
  | { readonly kind: "text"; readonly text: string; readonly options: EncodeOptions }
  | { readonly kind: "rendered"; readonly rendered: RenderedPrompt };

/** To a tokenizer's thread: first its model's folder or file, then jobs, which it answers in order. */
export type EncoderMessage =
  | { readonly kind: "load"; readonly folder: string; readonly isBackground: boolean }
  | EncodeJob;

export type EncoderAnswer =
  | { readonly kind: "tokens"; readonly tokens: Int32Array }
  | { readonly kind: "failed"; readonly reason: string };

export function encodeWith(tokenizer: Tokenizer, job: EncodeJob): TokenId[] {
  return job.kind === "text"
    ? tokenizer.encode(job.text, job.options)
    : tokenizer.encodeRendered(job.rendered);
}

interface Waiting {
  readonly resolve: (tokens: TokenId[]) => void;
  readonly reject: (reason: Error) => void;
}

/** A thread with a tokenizer of its own, and what it has not answered, in the order in which it was posted. */
interface Thread {
  readonly worker: Worker;
  readonly waiting: Waiting[];
}

export class Encoder {
  readonly #tokenizer: Tokenizer;
  readonly #folder: string;
  readonly #workerUrl: string;
  readonly #settings: EncoderSettings;
  #threads: Thread[] = [];
  #waiting = 0;
  #idle: ReturnType<typeof setTimeout> | null = null;

  /** `workerUrl` is that of worker.ts, `folder` what `tokenizer` was loaded from. */
  constructor(tokenizer: Tokenizer, folder: string, workerUrl: string, settings = forRequests) {
    this.#tokenizer = tokenizer;
    this.#folder = folder;
    this.#workerUrl = workerUrl;
    this.#settings = settings;
  }

  /** Another one for many texts of which none is awaited: it takes every core that nobody else wants. */
  forJobs(): Encoder {
    return new Encoder(this.#tokenizer, this.#folder, this.#workerUrl, forJobs);
  }

  /** See `Tokenizer.encode`. Rejects with EncoderBusyError when too many wait. */
  encode(text: string, options: EncodeOptions): Promise<TokenId[]> {
    return this.#run({ kind: "text", text, options }, text.length);
  }

  /** See `Tokenizer.encodeRendered`. Rejects with EncoderBusyError when too many wait. */
  encodeRendered(rendered: RenderedPrompt): Promise<TokenId[]> {
    return this.#run({ kind: "rendered", rendered }, rendered.text.length);
  }

  /** Ends the threads; texts that wait are rejected. */
  close(): void {
    for (const thread of this.#threads) this.#end(thread, "the tokenizer is closed");
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = null;
  }

  async #run(job: EncodeJob, units: number): Promise<TokenId[]> {
    const { inlineUnitsMax, waitingMax } = this.#settings;
    if (units <= inlineUnitsMax) return encodeWith(this.#tokenizer, job);
    if (this.#waiting >= waitingMax)
      throw new EncoderBusyError(`${waitingMax} long texts wait to be tokenised`);
    const { worker, waiting } = this.#leastBusy();
    const { promise, resolve, reject } = Promise.withResolvers<TokenId[]>();
    waiting.push({ resolve, reject });
    this.#waiting += 1;
    worker.postMessage(job satisfies EncoderMessage);
    return promise;
  }

  /** A thread with nothing to do, started if it may; else the one with fewest texts. */
  #leastBusy(): Thread {
    const [first, ...others] = this.#threads;
    const least = others.reduce((a, b) => (b.waiting.length < a!.waiting.length ? b : a), first);
    const isFree = least?.waiting.length === 0;
    return isFree || this.#threads.length === this.#settings.threads ? least! : this.#start();
  }

  #start(): Thread {
    const worker = new Worker(this.#workerUrl, { name: "tokenizer" });
    const thread: Thread = { worker, waiting: [] };
    this.#threads.push(thread);
    worker.unref(); // never keeps the process alive by itself
    worker.onmessage = ({ data }: MessageEvent<EncoderAnswer>) => {
      const waiting = thread.waiting.shift();
      this.#waiting -= 1;
      if (data.kind === "tokens") waiting?.resolve(Array.from(data.tokens));
      else waiting?.reject(new Error(data.reason));
      this.#closeWhenIdle();
    };
    worker.onerror = (event) => this.#end(thread, event.message);
    const isBackground = this.#settings.idleMs !== null;
    worker.postMessage({ kind: "load", folder: this.#folder, isBackground } satisfies EncoderMessage);
    return thread;
  }

  /** A thread is gone; the next text that finds none free starts another. */
  #end(thread: Thread, reason: string): void {
    thread.worker.terminate();
    this.#threads = this.#threads.filter((one) => one !== thread);
    this.#waiting -= thread.waiting.length;
    for (const { reject } of thread.waiting.splice(0)) reject(new Error(reason));
  }

  #closeWhenIdle(): void {
    const { idleMs } = this.#settings;
    if (idleMs === null || this.#waiting > 0) return;
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = setTimeout(() => {
      if (this.#waiting === 0) this.close();
    }, idleMs);
    this.#idle.unref();
  }
}

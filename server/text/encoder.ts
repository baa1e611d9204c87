import { availableParallelism } from "node:os";
import { yieldIfSpent } from "../../base/time-slice.ts";
import type { TokenId } from "../../base/token.ts";
import {
  type ChatJob,
  type ChatOutcome,
  type EncodeJob,
  type OutcomeOf,
  runJob,
  type TextOutcome,
  takesLonger,
  unitsOf,
} from "../../text/encode-job.ts";
import { jsonTextsIn } from "../../text/json-text.ts";
import type { ModelText } from "../../text/model-text.ts";
import type { TemplateSource } from "../../text/template.ts";
import type { EncodeOptions } from "../../text/tokenizer.ts";

/**
 * Makes tokens of texts and of chats without holding up the thread that serves HTTP: of short ones at once, of long ones on threads
 * with tokenizers and templates of their own, which start when jobs come and none is free. All give the same.
 */

export interface EncoderSettings {
  /** Threads, at most. */
  readonly threads: number;
  /** What takes longer than a text of so many UTF-16 units goes to a thread. */
  readonly inlineUnitsMax: number;
  /** Before a thread is started that much is done here, in slices, of jobs that no thread has to do: so many units take as long as a
   *  thread that begins. The same goes on until the thread has begun. */
  readonly firstUnits: number;
  /** Jobs that wait for a thread, at most. */
  readonly waitingMax: number;
  /** Threads run when no other wants the processor, and end when there has been no job for so long. null: neither. */
  readonly idleMs: number | null;
}

/** For requests: what is not handed to a thread takes about 2 ms. */
const forRequests: EncoderSettings = {
  threads: 1,
  inlineUnitsMax: 8192,
  firstUnits: 0,
  waitingMax: 64,
  idleMs: null,
};

/** For jobs: every core, and no answer is awaited. Jobs themselves limit what waits. */
const forJobs: EncoderSettings = {
  threads: availableParallelism(),
  inlineUnitsMax: 0,
  firstUnits: 2 ** 21,
  waitingMax: Number.POSITIVE_INFINITY,
  idleMs: 10_000,
};

/** How long a template may write here; what takes longer begins anew on a thread. */
const HERE_MS = 6;
/** Processor time of a job here from which on others of its size go to a thread at once. */
const SLOW_MS = 12;

/** What tokenizers' expressions take longest with: one kind of character, over and over. */
const probes = ["a", "1", " ", "\n", "!", "é", "aA1 ", "'s"];

/** Too many long texts and chats wait. */
export class EncoderBusyError extends Error {
  override readonly name = "EncoderBusyError";
}

/** Its request has ended before it was done. */
export class EncoderStoppedError extends Error {
  override readonly name = "EncoderStoppedError";
}

/** What requests ask of an encoder. */
export type RequestEncoder = Pick<Encoder, "encode" | "writeChat" | "until">;

/** To a tokenizer's thread: first what makes its tokenizer and template, then jobs, which it answers in order. */
export type EncoderMessage =
  | {
      readonly kind: "load";
      /** The model's folder or file. */
      readonly folder: string;
      readonly template: TemplateSource | null;
      readonly isBackground: boolean;
    }
  | {
      readonly kind: "job";
      readonly job: EncodeJob;
      /** What is remembered of values in the job. */
      readonly jsonTexts: ReturnType<typeof jsonTextsIn>;
      /** Shared; 1: nobody waits for the job any more. */
      readonly stopped: Int32Array<SharedArrayBuffer>;
    };

export type EncoderAnswer =
  | { readonly kind: "begun" }
  | { readonly kind: "done"; readonly outcome: TextOutcome | ChatOutcome }
  | { readonly kind: "failed"; readonly reason: string };

interface Waiting {
  readonly resolve: (outcome: TextOutcome | ChatOutcome) => void;
  readonly reject: (reason: Error) => void;
}

/** A thread with a tokenizer and a template of its own, and what it has not answered, in the order in which it was posted. */
interface Thread {
  readonly worker: Worker;
  readonly waiting: Waiting[];
  /** It has its tokenizer. */
  hasBegun: boolean;
}

export class Encoder {
  readonly #text: ModelText;
  readonly #folder: string;
  readonly #workerUrl: string;
  readonly #settings: EncoderSettings;
  #threads: Thread[] = [];
  #waiting = 0;
  #idle: ReturnType<typeof setTimeout> | null = null;
  /** Left of `firstUnits`. */
  #firstUnits: number;
  /** Units of what is done here; fewer where some of that many were seen to take long. */
  #inlineUnitsMax: number;
  /** What is done here, one after the other. */
  #here: Promise<unknown> = Promise.resolve();

  /** `workerUrl` is that of worker.ts, `folder` what the tokenizer was loaded from. */
  constructor(text: ModelText, folder: string, workerUrl: string, settings = forRequests) {
    this.#text = text;
    this.#folder = folder;
    this.#workerUrl = workerUrl;
    this.#settings = settings;
    this.#firstUnits = settings.firstUnits;
    this.#inlineUnitsMax = settings.inlineUnitsMax;
  }

  /** Units of a text that is still made into tokens here. */
  get inlineUnitsMax(): number {
    return this.#inlineUnitsMax;
  }

  /** Tries texts that a tokenizer's expression may take long with, shorter ones first: none of a size that does is made into tokens
   *  here. */
  probe(): void {
    for (const probe of probes) {
      for (let units = 16; units <= this.#inlineUnitsMax; units *= 2) {
        const text = probe.repeat(units / probe.length);
        this.#timed(units, () => this.#text.tokenizer.encode(text, { addSpecialTokens: false }));
      }
    }
  }

  /** Another one for many jobs of which none is awaited: it takes every core that nobody else wants. */
  forJobs(): Encoder {
    return new Encoder(this.#text, this.#folder, this.#workerUrl, forJobs);
  }

  /** The same for one request: what is not done when that ends is stopped, and rejected with EncoderStoppedError. */
  until(signal: AbortSignal): RequestEncoder {
    return {
      encode: (text, options) => this.#encode(text, options, signal),
      writeChat: (chat) => this.#run({ kind: "chat", ...chat }, signal),
      until: (other) => this.until(AbortSignal.any([signal, other])),
    };
  }

  /** See `Tokenizer.encode`. Rejects with EncoderBusyError when too many wait. */
  encode(text: string, options: EncodeOptions): Promise<TokenId[]> {
    return this.#encode(text, options, null);
  }

  /** Only where the model has a template. Rejects with EncoderBusyError when too many wait. */
  writeChat(chat: Omit<ChatJob, "kind">): Promise<ChatOutcome> {
    return this.#run({ kind: "chat", ...chat }, null);
  }

  /** Ends the threads; jobs that wait are rejected. */
  close(): void {
    for (const thread of this.#threads) this.#end(thread, "the tokenizer is closed");
    if (this.#idle !== null) clearTimeout(this.#idle);
    this.#idle = null;
    this.#firstUnits = this.#settings.firstUnits;
  }

  async #encode(text: string, options: EncodeOptions, signal: AbortSignal | null): Promise<TokenId[]> {
    const { tokens } = await this.#run({ kind: "text", text, options }, signal);
    return Array.from(tokens);
  }

  async #run<Job extends EncodeJob>(job: Job, signal: AbortSignal | null): Promise<OutcomeOf<Job>> {
    if (signal?.aborted) throw new EncoderStoppedError();
    if (!takesLonger(job, this.#inlineUnitsMax)) {
      const outcome = this.#runInTime(job);
      if (outcome !== null) return outcome as OutcomeOf<Job>;
    } else if (this.#mayRunHere(job)) {
      const outcome = await this.#runHere(job);
      if (outcome !== null) return outcome as OutcomeOf<Job>;
    }
    const stopped = new Int32Array(new SharedArrayBuffer(4));
    const outcome = this.#post(job, stopped);
    if (signal === null) return (await outcome) as OutcomeOf<Job>;
    const ended = Promise.withResolvers<never>();
    const onAbort = (): void => {
      Atomics.store(stopped, 0, 1);
      ended.reject(new EncoderStoppedError());
    };
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return (await Promise.race([outcome, ended.promise])) as OutcomeOf<Job>;
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Does a job here. Null: its template takes longer than others on this thread can wait. */
  #runInTime(job: EncodeJob): TextOutcome | ChatOutcome | null {
    const untilMs = performance.now() + HERE_MS;
    let isLate = false;
    const isInTime = (): boolean => {
      isLate ||= performance.now() > untilMs;
      return !isLate;
    };
    const units = unitsOf(job, forRequests.inlineUnitsMax);
    const outcome = this.#timed(units, () => runJob(job, this.#text, isInTime));
    return isLate ? null : outcome;
  }

  /** Does work of so many units here, and remembers when it takes long. */
  #timed<Result>(units: number, work: () => Result): Result {
    const before = process.threadCpuUsage();
    const result = work();
    const { user, system } = process.threadCpuUsage(before);
    if ((user + system) / 1000 > SLOW_MS) this.#inlineUnitsMax = Math.min(this.#inlineUnitsMax, units >> 1);
    return result;
  }

  /** Whether a job comes before a thread has begun that would do it. */
  #mayRunHere(job: EncodeJob): boolean {
    const units = unitsOf(job, forRequests.inlineUnitsMax);
    if (this.#settings.firstUnits === 0 || units > forRequests.inlineUnitsMax) return false;
    if (this.#threads.some(({ hasBegun }) => hasBegun)) return false;
    this.#firstUnits -= units;
    if (this.#firstUnits < 0 && this.#threads.length === 0) this.#start();
    return true;
  }

  #runHere(job: EncodeJob): Promise<TextOutcome | ChatOutcome | null> {
    const done = this.#here.then(async () => {
      await yieldIfSpent();
      return this.#runInTime(job);
    });
    this.#here = done.then(
      () => this.#closeWhenIdle(),
      () => {},
    );
    return done;
  }

  #post(job: EncodeJob, stopped: Int32Array<SharedArrayBuffer>): Promise<TextOutcome | ChatOutcome> {
    const { waitingMax } = this.#settings;
    if (this.#waiting >= waitingMax)
      throw new EncoderBusyError(`${waitingMax} long texts wait to be tokenised`);
    const { worker, waiting } = this.#leastBusy();
    const { promise, resolve, reject } = Promise.withResolvers<TextOutcome | ChatOutcome>();
    waiting.push({ resolve, reject });
    this.#waiting += 1;
    // Copying a long chat takes milliseconds, as reading it did: others on this thread have a turn between.
    setImmediate(() => {
      const jsonTexts = jsonTextsIn(job);
      worker.postMessage({ kind: "job", job, jsonTexts, stopped } satisfies EncoderMessage);
    });
    return promise;
  }

  /** A thread with nothing to do, started if it may; else the one with fewest jobs. */
  #leastBusy(): Thread {
    const [first, ...others] = this.#threads;
    const least = others.reduce((a, b) => (b.waiting.length < a!.waiting.length ? b : a), first);
    const isFree = least?.waiting.length === 0;
    return isFree || this.#threads.length === this.#settings.threads ? least! : this.#start();
  }

  #start(): Thread {
    const worker = new Worker(this.#workerUrl, { name: "tokenizer" });
    const thread: Thread = { worker, waiting: [], hasBegun: false };
    this.#threads.push(thread);
    worker.unref(); // never keeps the process alive by itself
    worker.onmessage = ({ data }: MessageEvent<EncoderAnswer>) => {
      if (data.kind === "begun") {
        thread.hasBegun = true;
        return;
      }
      const waiting = thread.waiting.shift();
      this.#waiting -= 1;
      if (data.kind === "done") waiting?.resolve(data.outcome);
      else waiting?.reject(new Error(data.reason));
      this.#closeWhenIdle();
    };
    worker.onerror = (event) => this.#end(thread, event.message);
    const template = this.#text.template?.source ?? null;
    const isBackground = this.#settings.idleMs !== null;
    const load: EncoderMessage = { kind: "load", folder: this.#folder, template, isBackground };
    worker.postMessage(load);
    return thread;
  }

  /** A thread is gone; the next job that finds none free starts another. */
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

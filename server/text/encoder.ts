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
import type { TemplateSource } from "../../text/template-source.ts";
import type { EncodeOptions } from "../../text/tokenizer.ts";

/**
 * Tokenises texts and chats without blocking the thread that serves HTTP. It encodes short ones at once, and
 * long ones on threads with tokenizers and templates of their own. A thread starts when a job comes and none
 * is free. The results are the same.
 */

export interface EncoderSettings {
  /** Threads at most. */
  readonly threads: number;
  /** UTF-16 units of a text up to which a job of that cost runs on the serving thread. */
  readonly inlineUnitsMax: number;
  /**
   * UTF-16 units to encode here in slices before the first thread starts: about the work that takes as long
   * as starting a thread. Encoding here continues until the thread has loaded. Jobs that need a thread are
   * not affected.
   */
  readonly firstUnits: number;
  /** Jobs in the queue for threads at most. */
  readonly waitingMax: number;
  /**
   * Idle milliseconds after which threads end; they run at background priority. null: they run at normal
   * priority and never end.
   */
  readonly idleMs: number | null;
}

/** Settings for requests: the work on the serving thread stays at a few milliseconds. */
const forRequests: EncoderSettings = {
  threads: 1,
  inlineUnitsMax: 8192,
  firstUnits: 0,
  waitingMax: 64,
  idleMs: null,
};

/** Settings for batch jobs: all cores, since no client waits. The batch jobs limit their own queue. */
const forJobs: EncoderSettings = {
  threads: availableParallelism(),
  inlineUnitsMax: 0,
  firstUnits: 2 ** 21,
  waitingMax: Number.POSITIVE_INFINITY,
  idleMs: 10_000,
};

/** Milliseconds that a template may run here; a slower one starts again on a thread. */
const HERE_MS = 6;
/** Processor milliseconds of a job here beyond which jobs of its size go to a thread at once. */
const SLOW_MS = 12;

/** Repeated characters of one kind, on which tokenizers' regular expressions take longest. */
const probes = ["a", "1", " ", "\n", "!", "é", "aA1 ", "'s"];

/** Error of a full queue. */
export class EncoderBusyError extends Error {
  override readonly name = "EncoderBusyError";
}

/** Error of a job whose request ended first. */
export class EncoderStoppedError extends Error {
  override readonly name = "EncoderStoppedError";
}

/** Part of an encoder that requests use. */
export type RequestEncoder = Pick<Encoder, "encode" | "writeChat" | "until">;

/**
 * Messages to a tokenizer's thread: first the tokenizer and template to load, then jobs, which it answers in
 * order.
 */
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
      /** Source texts of JSON values in the job. */
      readonly jsonTexts: ReturnType<typeof jsonTextsIn>;
      /** Shared flag; 1: the job is cancelled. */
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

/** A thread with a tokenizer and a template of its own, and its unanswered jobs in posting order. */
interface Thread {
  readonly worker: Worker;
  readonly waiting: Waiting[];
  /** True once its tokenizer is loaded. */
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
  /** Rest of `firstUnits`. */
  #firstUnits: number;
  /** Current limit of units encoded here; lowered after slow jobs. */
  #inlineUnitsMax: number;
  /** Tail of the chain of jobs done here, one after the other. */
  #here: Promise<unknown> = Promise.resolve();

  /** `workerUrl` is that of worker.ts, `folder` the source of the tokenizer. */
  constructor(text: ModelText, folder: string, workerUrl: string, settings = forRequests) {
    this.#text = text;
    this.#folder = folder;
    this.#workerUrl = workerUrl;
    this.#settings = settings;
    this.#firstUnits = settings.firstUnits;
    this.#inlineUnitsMax = settings.inlineUnitsMax;
  }

  /** Largest text, in UTF-16 units, that is encoded on this thread. */
  get inlineUnitsMax(): number {
    return this.#inlineUnitsMax;
  }

  /**
   * Encodes worst-case texts of growing size, and lowers the limit for this thread to sizes that stay fast.
   */
  probe(): void {
    for (const probe of probes) {
      for (let units = 16; units <= this.#inlineUnitsMax; units *= 2) {
        const text = probe.repeat(units / probe.length);
        this.#timed(units, () => this.#text.tokenizer.encode(text, { addSpecialTokens: false }));
      }
    }
  }

  /** Another encoder for batch jobs, which uses all cores at background priority. */
  forJobs(): Encoder {
    return new Encoder(this.#text, this.#folder, this.#workerUrl, forJobs);
  }

  /**
   * The same encoder for one request: when `signal` aborts, unfinished jobs stop and reject with
   * EncoderStoppedError.
   */
  until(signal: AbortSignal): RequestEncoder {
    return {
      encode: (text, options) => this.#encode(text, options, signal),
      writeChat: (chat) => this.#run({ kind: "chat", ...chat }, signal),
      until: (other) => this.until(AbortSignal.any([signal, other])),
    };
  }

  /** See `Tokenizer.encode`. Rejects with EncoderBusyError when the queue is full. */
  encode(text: string, options: EncodeOptions): Promise<TokenId[]> {
    return this.#encode(text, options, null);
  }

  /** Writes a chat; the model must have a template. Rejects with EncoderBusyError when the queue is full. */
  writeChat(chat: Omit<ChatJob, "kind">): Promise<ChatOutcome> {
    return this.#run({ kind: "chat", ...chat }, null);
  }

  /** Ends the threads and rejects their jobs. */
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

  /** Runs a job here. Null if its template exceeds the time limit of this thread. */
  #runInTime(job: EncodeJob): TextOutcome | ChatOutcome | null {
    const run = (): TextOutcome | ChatOutcome | null => {
      const untilMs = performance.now() + HERE_MS;
      let isLate = false;
      const isInTime = (): boolean => {
        isLate ||= performance.now() > untilMs;
        return !isLate;
      };
      const outcome = runJob(job, this.#text, isInTime);
      return isLate ? null : outcome;
    };
    return this.#timed(unitsOf(job, forRequests.inlineUnitsMax), run);
  }

  /**
   * Runs work of this size here. If it was slow it runs again, and the limit falls if it was slow both times: a
   * garbage collection within a single run must not send all later texts to the threads.
   */
  #timed<Result>(units: number, work: () => Result): Result {
    let result: Result | undefined;
    const isSlow = (): boolean => {
      const before = process.threadCpuUsage();
      result = work();
      const { user, system } = process.threadCpuUsage(before);
      return (user + system) / 1000 > SLOW_MS;
    };
    if (isSlow() && isSlow()) this.#inlineUnitsMax = Math.min(this.#inlineUnitsMax, units >> 1);
    return result!;
  }

  /** True if the job should run here because no thread has loaded yet. */
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
    // Copying a long chat takes milliseconds, as reading it did: yields to other work on this thread first.
    setImmediate(() => {
      const jsonTexts = jsonTextsIn(job);
      worker.postMessage({ kind: "job", job, jsonTexts, stopped } satisfies EncoderMessage);
    });
    return promise;
  }

  /** An idle thread, started if the limit allows; else the one with the fewest jobs. */
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

  /** Removes a thread and rejects its jobs; the next job that finds none free starts another. */
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

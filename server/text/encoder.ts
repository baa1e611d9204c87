import type { TokenId } from "../../scheduler/core.ts";
import type { RenderedPrompt } from "./control-text.ts";
import type { EncodeOptions, Tokenizer } from "./tokenizer.ts";

/**
 * Encodes without holding up the thread that serves HTTP: short texts at once, long ones on a thread with a tokenizer
 * of its own, which starts with the first of them. Both give the same tokens.
 */

/** Longer texts, in UTF-16 units, go to the tokenizer's thread: these take about 2 ms. */
const inlineUnitsMax = 8192;
/** Texts that wait for the tokenizer's thread. */
const waitingMax = 64;

/** Too many long texts wait. */
export class EncoderBusyError extends Error {
  override readonly name = "EncoderBusyError";
}

/** What to encode. */
export type EncodeJob =
  | { readonly kind: "text"; readonly text: string; readonly options: EncodeOptions }
  | { readonly kind: "rendered"; readonly rendered: RenderedPrompt };

/** To the tokenizer's thread: first its model's folder or file, then jobs, which it answers in order. */
export type EncoderMessage = { readonly kind: "load"; readonly folder: string } | EncodeJob;

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

export class Encoder {
  readonly #tokenizer: Tokenizer;
  readonly #folder: string;
  readonly #workerUrl: string;
  #worker: Worker | null = null;
  /** In the order of the jobs posted. */
  readonly #waiting: Waiting[] = [];

  /** `workerUrl` is that of worker.ts, `folder` what `tokenizer` was loaded from. */
  constructor(tokenizer: Tokenizer, folder: string, workerUrl: string) {
    this.#tokenizer = tokenizer;
    this.#folder = folder;
    this.#workerUrl = workerUrl;
  }

  /** See `Tokenizer.encode`. Rejects with EncoderBusyError when too many wait. */
  encode(text: string, options: EncodeOptions): Promise<TokenId[]> {
    return this.#run({ kind: "text", text, options }, text.length);
  }

  /** See `Tokenizer.encodeRendered`. Rejects with EncoderBusyError when too many wait. */
  encodeRendered(rendered: RenderedPrompt): Promise<TokenId[]> {
    return this.#run({ kind: "rendered", rendered }, rendered.text.length);
  }

  /** Ends the tokenizer's thread; texts that wait are rejected. */
  close(): void {
    this.#fail("the tokenizer is closed");
  }

  async #run(job: EncodeJob, units: number): Promise<TokenId[]> {
    if (units <= inlineUnitsMax) return encodeWith(this.#tokenizer, job);
    if (this.#waiting.length >= waitingMax)
      throw new EncoderBusyError(`${waitingMax} long texts wait to be tokenised`);
    this.#worker ??= this.#start();
    const { promise, resolve, reject } = Promise.withResolvers<TokenId[]>();
    this.#waiting.push({ resolve, reject });
    this.#worker.postMessage(job satisfies EncoderMessage);
    return promise;
  }

  #start(): Worker {
    const worker = new Worker(this.#workerUrl, { name: "tokenizer" });
    worker.unref(); // never keeps the process alive by itself
    worker.onmessage = ({ data }: MessageEvent<EncoderAnswer>) => {
      const waiting = this.#waiting.shift();
      if (data.kind === "tokens") waiting?.resolve(Array.from(data.tokens));
      else waiting?.reject(new Error(data.reason));
    };
    worker.onerror = (event) => this.#fail(event.message);
    worker.postMessage({ kind: "load", folder: this.#folder } satisfies EncoderMessage);
    return worker;
  }

  /** The thread is gone; the next long text starts another. */
  #fail(reason: string): void {
    this.#worker?.terminate();
    this.#worker = null;
    for (const { reject } of this.#waiting.splice(0)) reject(new Error(reason));
  }
}

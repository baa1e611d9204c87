export interface StreamLimits {
  /** A sign of life is sent when nothing else was for this long. */
  readonly keepAliveMs: number;
  /** Bytes that may wait for a reader who does not read; more end the stream. */
  readonly pendingBytesMax: number;
  /** How long a reader may leave bytes waiting. */
  readonly stallMs: number;
}

/** What a stream's text comes from. */
export interface Producer {
  /** The reader does not keep up: produce less. */
  pause(): void;
  /** The reader has caught up. */
  resume(): void;
  /** The client is gone, and the stream is closed; or the reader is too slow, and nothing more may be written but a
   *  last text that says so. */
  abort(by: "reader" | "slowReader"): void;
}

/** Text to write, or its pieces, one after the other: pieces that many texts have in common are kept as bytes, which costs less than to put
 *  a text together. */
export type StreamText = string | readonly (string | Uint8Array)[];

/** How a wire format frames a stream. */
export interface Framing {
  readonly contentType: string;
  /** Sent before everything else: headers travel with the first bytes, and this sends them before there is a token. */
  readonly opening: string;
  /** Sent when nothing else was for a while. */
  readonly keepAlive: string;
}

/** Server-sent events: what opens a stream and keeps it alive are comments. */
export const sseFraming: Framing = Object.freeze({
  contentType: "text/event-stream; charset=utf-8",
  opening: ": open\n\n",
  keepAlive: ": ping\n\n",
});

/** One server-sent event, of a name where the format has names. `json` holds no line break, as JSON.stringify writes none. */
export function sseEvent(json: string, name?: string): string {
  return name === undefined ? `data: ${json}\n\n` : `event: ${name}\ndata: ${json}\n\n`;
}

/**
 * One response whose text is written as it comes. It goes straight to the socket, without a queue of ours; what the
 * socket does not take is counted, told to the producer, and bounded in bytes and in time. `end` or a disconnect closes
 * it; what is written afterwards is dropped.
 */
export class ResponseStream {
  readonly #framing: Framing;
  readonly #limits: StreamLimits;
  readonly #producer: Producer;
  /** Written before Bun asked for the body. */
  #early: StreamText[] = [];
  #controller: ReadableStreamDirectController | null = null;
  #settle: { readonly resolve: () => void; readonly reject: (reason: Error) => void } | null = null;
  #isClosed = false;
  #isCongested = false;
  #pendingBytes = 0;
  #wroteSinceTick = false;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #stall: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal, framing: Framing, limits: StreamLimits, producer: Producer) {
    this.#framing = framing;
    this.#limits = limits;
    this.#producer = producer;
    if (signal.aborted) queueMicrotask(() => this.#disconnected());
    else signal.addEventListener("abort", () => this.#disconnected(), { once: true });
  }

  /** The response. Its headers go out at once, before anything is sent. */
  response(): Response {
    if (!this.#isClosed)
      this.#keepAlive = setInterval(() => {
        if (!this.#wroteSinceTick && !this.#isCongested) this.write(this.#framing.keepAlive);
        this.#wroteSinceTick = false;
      }, this.#limits.keepAliveMs);
    const source: Bun.DirectUnderlyingSource<string> = {
      type: "direct",
      pull: (controller: ReadableStreamDirectController) => this.#attach(controller),
      cancel: () => this.#disconnected(),
    };
    return new Response(new ReadableStream(source), {
      headers: {
        "content-type": this.#framing.contentType,
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
      },
    });
  }

  write(text: StreamText): void {
    if (this.#isClosed || text === "") return;
    this.#wroteSinceTick = true;
    if (this.#controller === null) this.#early.push(text);
    else this.#put(text);
  }

  #attach(controller: ReadableStreamDirectController): Promise<void> {
    const closed = new Promise<void>((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#controller = controller;
    const early = [this.#framing.opening, ...this.#early].flat();
    this.#early = [];
    this.#put(early);
    if (this.#isClosed) this.#finish();
    return closed;
  }

  #put(text: StreamText): void {
    let taken: Promise<number> | null = null;
    let bytes = 0;
    for (const piece of typeof text === "string" ? [text] : text) {
      const result = this.#controller!.write(piece);
      if (result instanceof Promise) taken = result;
      bytes += piece.length;
    }
    if (taken === null) return;
    this.#pendingBytes += bytes;
    if (this.#isCongested) {
      if (this.#pendingBytes > this.#limits.pendingBytesMax && !this.#isClosed)
        this.#producer.abort("slowReader");
      return;
    }
    this.#isCongested = true;
    this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    this.#producer.pause();
    taken.then(
      () => this.#drained(),
      () => this.#disconnected(),
    );
  }

  #drained(): void {
    if (!this.#isCongested) return;
    this.#isCongested = false;
    this.#pendingBytes = 0;
    clearTimeout(this.#stall);
    if (this.#isClosed) this.#finish();
    else this.#producer.resume();
  }

  #stalled(): void {
    // The last event is written and was not read either: nothing is left but to reset the connection.
    if (this.#isClosed) this.#settle!.reject(new Error("the reader does not read"));
    else this.#producer.abort("slowReader");
  }

  #disconnected(): void {
    if (this.#isClosed) return;
    this.#isCongested = false;
    this.end();
    this.#producer.abort("reader");
  }

  /** Nothing more will be written. */
  end(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#keepAlive);
    clearTimeout(this.#stall);
    if (this.#isCongested) this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    else if (this.#controller !== null) this.#finish();
  }

  #finish(): void {
    this.#controller!.end();
    this.#settle!.resolve();
  }
}

import type { ErrorBody } from "./errors.ts";

export interface EventStreamLimits {
  /** A comment is sent when nothing else was for this long. */
  readonly keepAliveMs: number;
  /** Bytes that may wait for a reader who does not read; more end the stream. */
  readonly pendingBytesMax: number;
  /** How long a reader may leave bytes waiting. */
  readonly stallMs: number;
}

export interface EventStreamEvents {
  /** The reader does not keep up: produce less. */
  onCongested(): void;
  /** The reader has caught up. */
  onDrained(): void;
  /** A limit is passed: nothing more may be sent but the `fail` that tells so. */
  onTooSlow(): void;
  /** Nobody will read any more; the stream is closed. */
  onDisconnected(): void;
}

/**
 * One response of server-sent events. Text goes straight to the socket, without a queue of ours; what the socket does
 * not take is counted, told to the producer, and bounded in bytes and in time. `end`, `fail` or a disconnect closes it,
 * whatever is sent afterwards is dropped.
 */
export class EventStream {
  readonly #limits: EventStreamLimits;
  readonly #events: EventStreamEvents;
  /** Written before Bun asked for the body. */
  #early: string[] = [];
  #controller: ReadableStreamDirectController | null = null;
  #settle: { readonly resolve: () => void; readonly reject: (reason: Error) => void } | null = null;
  #isClosed = false;
  #isCongested = false;
  #pendingBytes = 0;
  #wroteSinceTick = false;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #stall: ReturnType<typeof setTimeout> | undefined;

  constructor(signal: AbortSignal, limits: EventStreamLimits, events: EventStreamEvents) {
    this.#limits = limits;
    this.#events = events;
    if (signal.aborted) queueMicrotask(() => this.#disconnected());
    else signal.addEventListener("abort", () => this.#disconnected(), { once: true });
  }

  /** The response. Its headers go out at once, before anything is sent. */
  response(): Response {
    if (!this.#isClosed)
      this.#keepAlive = setInterval(() => {
        if (!this.#wroteSinceTick && !this.#isCongested) this.#write(": ping\n\n");
        this.#wroteSinceTick = false;
      }, this.#limits.keepAliveMs);
    const source: Bun.DirectUnderlyingSource<string> = {
      type: "direct",
      pull: (controller: ReadableStreamDirectController) => this.#attach(controller),
      cancel: () => this.#disconnected(),
    };
    return new Response(new ReadableStream(source), {
      headers: {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
      },
    });
  }

  /** One event. `json` holds no line break, as JSON.stringify writes none. */
  send(json: string): void {
    this.#write(`data: ${json}\n\n`);
  }

  /** All is told. */
  end(): void {
    this.send("[DONE]");
    this.#close();
  }

  /** Ends with an error, which clients throw; the missing [DONE] says that the stream is not whole. */
  fail(body: ErrorBody): void {
    this.send(JSON.stringify(body));
    this.#close();
  }

  #attach(controller: ReadableStreamDirectController): Promise<void> {
    const closed = new Promise<void>((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    this.#controller = controller;
    // Headers travel with the first bytes; a comment sends them before there is a token.
    const early = [": open\n\n", ...this.#early].join("");
    this.#early = [];
    this.#put(early);
    if (this.#isClosed) this.#finish();
    return closed;
  }

  #write(text: string): void {
    if (this.#isClosed) return;
    this.#wroteSinceTick = true;
    if (this.#controller === null) this.#early.push(text);
    else this.#put(text);
  }

  #put(text: string): void {
    const taken = this.#controller!.write(text);
    if (!(taken instanceof Promise)) return;
    this.#pendingBytes += text.length;
    if (this.#isCongested) {
      if (this.#pendingBytes > this.#limits.pendingBytesMax && !this.#isClosed) this.#events.onTooSlow();
      return;
    }
    this.#isCongested = true;
    this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    this.#events.onCongested();
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
    else this.#events.onDrained();
  }

  #stalled(): void {
    // The last event is written and was not read either: nothing is left but to reset the connection.
    if (this.#isClosed) this.#settle!.reject(new Error("the reader does not read"));
    else this.#events.onTooSlow();
  }

  #disconnected(): void {
    if (this.#isClosed) return;
    this.#isCongested = false;
    this.#close();
    this.#events.onDisconnected();
  }

  #close(): void {
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

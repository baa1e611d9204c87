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

/** Who a stream is for. */
export interface StreamReader {
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  /** Bytes that the client's system would still take, which are fewer by what it has and the client has not read; null: it is
   *  not known. */
  readonly windowBytes: () => number | null;
}

/** How a wire format frames a stream. */
export interface Framing {
  readonly contentType: string;
  /** Sent before everything else: headers travel with the first bytes, and this sends them before there is a token. */
  readonly opening: string;
  /** Sent when nothing else was for a while. */
  readonly keepAlive: string;
  /** Some kilobytes that mean nothing; "": there is no such text. */
  readonly filler: string;
}

/** Server-sent events: what opens a stream and keeps it alive are comments. */
export const sseFraming: Framing = Object.freeze({
  contentType: "text/event-stream; charset=utf-8",
  opening: ": open\n\n",
  keepAlive: ": ping\n\n",
  filler: `: ${" ".repeat(4096)}\n\n`,
});

/** One server-sent event, of a name where the format has names. `json` holds no line break, as JSON.stringify writes none. */
export function sseEvent(json: string, name?: string): string {
  return name === undefined ? `data: ${json}\n\n` : `event: ${name}\ndata: ${json}\n\n`;
}

/** Writes between two looks at the client's window, and how many like those may be unread besides them. */
const LOOK_EVERY_WRITES = 16;
const UNREAD_WRITES_MAX = 2;
/** How long a stream whose window has become smaller is held before it is looked at again, the first time and at most. Each time
 *  it is sent something without meaning: a system tells of its window in its answers alone, and a window that is not smaller by what
 *  was sent is one of a client that reads, although windows become smaller for other reasons, too. */
const PROBE_FIRST_MS = 50;
const PROBE_MS_MAX = 2000;

/**
 * One response whose text is written as it comes. It goes straight to the socket, without a queue of ours. What the
 * socket does not take is counted, told to the producer, and bounded in bytes and in time; what the client's system takes and
 * the client does not read is told to the producer as well. `end` or a disconnect closes it; what is written afterwards is
 * dropped.
 */
export class ResponseStream {
  readonly #framing: Framing;
  readonly #limits: StreamLimits;
  readonly #producer: Producer;
  readonly #reader: StreamReader;
  /** Written before Bun asked for the body. */
  #early: string[] = [];
  #controller: ReadableStreamDirectController | null = null;
  #settle: { readonly resolve: () => void; readonly reject: (reason: Error) => void } | null = null;
  #isClosed = false;
  /** The socket takes no more for now. */
  #isCongested = false;
  #pendingBytes = 0;
  /** The client's system takes it, and the client does not read it. */
  #isUnread = false;
  #windowMax = 0;
  #sinceLook = { writes: 0, bytes: 0 };
  #unreadBytesMax = 0;
  #wroteSinceTick = false;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #stall: ReturnType<typeof setTimeout> | undefined;
  #probe: ReturnType<typeof setTimeout> | undefined;

  constructor(reader: StreamReader, framing: Framing, limits: StreamLimits, producer: Producer) {
    this.#framing = framing;
    this.#limits = limits;
    this.#producer = producer;
    this.#reader = reader;
    const { signal } = reader;
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

  write(text: string): void {
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
    const early = [this.#framing.opening, ...this.#early].join("");
    this.#early = [];
    this.#put(early);
    if (this.#isClosed) this.#finish();
    return closed;
  }

  #put(text: string): void {
    if (this.#sinceLook.writes === LOOK_EVERY_WRITES) this.#look();
    this.#sinceLook.writes += 1;
    this.#sinceLook.bytes += text.length;
    const taken = this.#controller!.write(text);
    if (!(taken instanceof Promise)) return;
    this.#pendingBytes += text.length;
    if (this.#isCongested) {
      if (this.#pendingBytes > this.#limits.pendingBytesMax && !this.#isClosed)
        this.#producer.abort("slowReader");
      return;
    }
    if (!this.#isUnread) this.#hold();
    this.#isCongested = true;
    taken.then(
      () => this.#drained(),
      () => this.#disconnected(),
    );
  }

  #drained(): void {
    if (!this.#isCongested) return;
    this.#isCongested = false;
    this.#pendingBytes = 0;
    if (this.#isClosed) {
      clearTimeout(this.#stall);
      this.#finish();
    } else if (!this.#isUnread) this.#goOn();
  }

  /** Of what was written since the look before, the client may be about to read all. */
  #look(): void {
    const { writes, bytes } = this.#sinceLook;
    this.#sinceLook = { writes: 0, bytes: 0 };
    if (this.#isUnread || this.#isClosed || this.#framing.filler === "") return;
    this.#unreadBytesMax = (UNREAD_WRITES_MAX * bytes) / writes;
    if (this.#unreadBytes() <= this.#unreadBytesMax + bytes) return;
    if (!this.#isCongested) this.#hold();
    this.#isUnread = true;
    this.#probeIn(PROBE_FIRST_MS, 0);
  }

  /** As far as it is known. */
  #unreadBytes(): number {
    const windowBytes = this.#reader.windowBytes();
    if (windowBytes === null) return 0;
    this.#windowMax = Math.max(this.#windowMax, windowBytes);
    return this.#windowMax - windowBytes;
  }

  /** `unreadBytes`: what was unread before the last probe. */
  #probeIn(ms: number, unreadBytes: number): void {
    this.#probe = setTimeout(() => {
      const bytes = this.#unreadBytes();
      const isRead = bytes <= Math.max(this.#unreadBytesMax, unreadBytes);
      if (isRead) {
        this.#windowMax -= bytes;
        this.#sinceLook = { writes: 0, bytes: 0 };
        this.#isUnread = false;
        if (!this.#isCongested) this.#goOn();
        return;
      }
      if (!this.#isCongested) this.write(this.#framing.filler);
      this.#probeIn(Math.min(2 * ms, PROBE_MS_MAX), bytes);
    }, ms);
  }

  #hold(): void {
    this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    this.#producer.pause();
  }

  #goOn(): void {
    clearTimeout(this.#stall);
    this.#producer.resume();
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
    clearTimeout(this.#probe);
    if (this.#isCongested) this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    else if (this.#controller !== null) this.#finish();
  }

  #finish(): void {
    this.#controller!.end();
    this.#settle!.resolve();
  }
}

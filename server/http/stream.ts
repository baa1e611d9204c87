import type { Outlet, Reply, TextSource } from "./reply.ts";
import type { StreamText } from "./text-batch.ts";

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
 * One response whose text is written as it comes. It goes straight to the socket; what the socket does not take is told to the producer, and
 * bounded in bytes and in time. `end` or a disconnect closes it; what is written afterwards is dropped.
 */
export class ResponseStream implements TextSource {
  readonly #reply: Reply;
  readonly #framing: Framing;
  readonly #limits: StreamLimits;
  readonly #producer: Producer;
  /** Written before the response was returned. */
  #early: StreamText[] = [];
  #outlet: Outlet | null = null;
  #isClosed = false;
  #isCongested = false;
  #wroteSinceTick = false;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #stall: ReturnType<typeof setTimeout> | undefined;

  constructor(reply: Reply, framing: Framing, limits: StreamLimits, producer: Producer) {
    this.#reply = reply;
    this.#framing = framing;
    this.#limits = limits;
    this.#producer = producer;
    if (reply.signal.aborted) queueMicrotask(() => this.#disconnected());
    else reply.signal.addEventListener("abort", () => this.#disconnected(), { once: true });
  }

  /** The response. Its headers go out at once, before anything is sent. */
  response(): Response {
    if (!this.#isClosed)
      this.#keepAlive = setInterval(() => {
        if (!this.#wroteSinceTick && !this.#isCongested) this.write(this.#framing.keepAlive);
        this.#wroteSinceTick = false;
      }, this.#limits.keepAliveMs);
    this.#reply.streamFrom(this);
    return new Response(null, {
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
    if (this.#outlet === null) this.#early.push(text);
    else this.#outlet.write(text);
  }

  begin(outlet: Outlet): void {
    this.#outlet = outlet;
    outlet.write([this.#framing.opening, ...this.#early].flat());
    this.#early = [];
    if (this.#isClosed) outlet.end();
  }

  onCongested(): void {
    if (this.#isCongested) {
      if (this.#outlet!.waitingBytes > this.#limits.pendingBytesMax && !this.#isClosed)
        this.#producer.abort("slowReader");
      return;
    }
    this.#isCongested = true;
    this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    if (!this.#isClosed) this.#producer.pause();
    this.#outlet!.whenTaken(() => this.#taken());
  }

  /** The reader has read everything, or is gone. */
  #taken(): void {
    this.#isCongested = false;
    clearTimeout(this.#stall);
    if (!this.#isClosed) this.#producer.resume();
  }

  #stalled(): void {
    // The last event is written and was not read either: nothing is left but to reset the connection.
    if (this.#isClosed) this.#outlet!.reset();
    else this.#producer.abort("slowReader");
  }

  #disconnected(): void {
    if (this.#isClosed) return;
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
    this.#outlet?.end();
  }
}

import type { Outlet, ReplyTarget, TextSource } from "./reply.ts";
import type { StreamText } from "./text-batch.ts";

export interface StreamLimits {
  /** Time without other text after which a keep-alive is sent. */
  readonly keepAliveMs: number;
  /** Bytes that may wait for a client that does not read; more end the stream. */
  readonly pendingBytesMax: number;
  /** Time that a client may leave bytes waiting. */
  readonly stallMs: number;
}

/** Producer of a stream's text. */
export interface Producer {
  /** Stops producing, because the client does not keep up. */
  pause(): void;
  /** Continues: the client has caught up. */
  resume(): void;
  /**
   * Ends the work. `reader`: the client disconnected and the stream is closed. `slowReader`: the client is
   * too slow, and only a last text that says so may be written.
   */
  abort(by: "reader" | "slowReader"): void;
}

/** Framing of a stream in one wire format. */
export interface Framing {
  readonly contentType: string;
  /**
   * Sent before everything else: HTTP headers travel with the first bytes, so this sends them before there is
   * a token.
   */
  readonly opening: string;
  /** Sent after a while without other text. */
  readonly keepAlive: string;
}

/** Server-sent events: the opening and the keep-alive are comments. */
export const sseFraming: Framing = Object.freeze({
  contentType: "text/event-stream; charset=utf-8",
  opening: ": open\n\n",
  keepAlive: ": ping\n\n",
});

/**
 * Formats a server-sent event, with a name where the format has names. `json` holds no line break, as
 * JSON.stringify writes none.
 */
export function sseEvent(json: string, name?: string): string {
  return name === undefined ? `data: ${json}\n\n` : `event: ${name}\ndata: ${json}\n\n`;
}

/**
 * Response whose text is written as it is produced, straight to the socket. Bytes that the socket does not
 * accept cause back pressure on the producer, and are bounded in number and in time. `end` or a disconnect
 * closes it; later writes are dropped.
 */
export class ResponseStream implements TextSource {
  readonly #reply: ReplyTarget;
  readonly #framing: Framing;
  readonly #limits: StreamLimits;
  readonly #producer: Producer;
  /** Text written before the response was returned. */
  #early: StreamText[] = [];
  #outlet: Outlet | null = null;
  #isClosed = false;
  #isCongested = false;
  #wroteSinceTick = false;
  #keepAlive: ReturnType<typeof setInterval> | undefined;
  #stall: ReturnType<typeof setTimeout> | undefined;

  constructor(reply: ReplyTarget, framing: Framing, limits: StreamLimits, producer: Producer) {
    this.#reply = reply;
    this.#framing = framing;
    this.#limits = limits;
    this.#producer = producer;
    if (reply.signal.aborted) queueMicrotask(() => this.#disconnected());
    else reply.signal.addEventListener("abort", () => this.#disconnected(), { once: true });
  }

  /** True once the text has ended or the client has disconnected. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The response. Its headers are sent at once, before any text. */
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

  /** Handles a client that has read everything, or is gone. */
  #taken(): void {
    this.#isCongested = false;
    clearTimeout(this.#stall);
    if (!this.#isClosed) this.#producer.resume();
  }

  #stalled(): void {
    // The last event is written and was not read either, so only a reset remains.
    if (this.#isClosed) this.#outlet!.reset();
    else this.#producer.abort("slowReader");
  }

  #disconnected(): void {
    if (this.#isClosed) return;
    this.end();
    this.#producer.abort("reader");
  }

  /** Ends the text. */
  end(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#keepAlive);
    clearTimeout(this.#stall);
    if (this.#isCongested) this.#stall = setTimeout(() => this.#stalled(), this.#limits.stallMs);
    this.#outlet?.end();
  }
}

import { ApiError, badRequest } from "./errors.ts";
import type { Outlet, ReplyTarget, TextSource } from "./reply.ts";
import { type Framing, ResponseStream, type StreamLimits } from "./stream.ts";
import type { StreamText } from "./text-batch.ts";

/** Bytes after which a reader waits for the next turn of the event loop. */
const TURN_BYTES = 64 * 1024;

/**
 * Comments without a following empty line: some clients dispatch an event at that line once events have ids.
 */
const framing: Framing = Object.freeze({
  contentType: "text/event-stream; charset=utf-8",
  opening: ": open\n",
  keepAlive: ": ping\n",
});

/** Callbacks of a stream to the list that keeps it. */
export interface Keeper {
  /** Time without readers after which the answer is aborted; null: it goes on to its end. */
  readonly readerlessMs: number | null;
  /** Counts bytes that are kept, or no longer kept. */
  count(bytes: number): void;
  /** Reports the end of the answer. */
  ended(): void;
  /** Reports that the stream accepts no more readers. */
  forget(): void;
}

/** Reader of a kept stream, and the number of the next event that it gets. */
interface Reader {
  readonly stream: ResponseStream;
  next: number;
  isPaused: boolean;
  isScheduled: boolean;
}

/**
 * Server-sent events of one answer that outlive its connections. The events are numbered from 0 (`id:`) and kept.
 * A reader gets those after a given number, and then the new ones. Comments go to connected readers only.
 */
export class KeptStream implements Outlet {
  readonly waitingBytes = 0;
  readonly #limits: StreamLimits;
  readonly #keeper: Keeper;
  readonly #aborting = new AbortController();
  readonly #readers = new Set<Reader>();
  readonly #whenSent: (() => void)[] = [];
  readonly #ended = Promise.withResolvers<void>();
  #source: TextSource | null = null;
  #events: Buffer[] = [];
  /** Number of the first kept event. */
  #first = 0;
  /** Text whose event is not complete. */
  #rest = "";
  #isEnded = false;
  #isForgotten = false;
  #leaving: ReturnType<typeof setTimeout> | undefined;

  constructor(limits: StreamLimits, keeper: Keeper) {
    this.#limits = limits;
    this.#keeper = keeper;
  }

  /** Destination for the answer. */
  readonly reply: ReplyTarget = {
    signal: this.#aborting.signal,
    streamFrom: (source) => {
      this.#source = source;
    },
    whenSent: (tell) => this.#whenSent.push(tell),
  };

  /** Resolves once the answer has ended. */
  get whenEnded(): Promise<void> {
    return this.#ended.promise;
  }

  get isEnded(): boolean {
    return this.#isEnded;
  }

  /** True once the answer is known to be a stream. */
  get isStarted(): boolean {
    return this.#source !== null;
  }

  get hasReaders(): boolean {
    return this.#readers.size > 0;
  }

  /** Begins with the answer's text. Returns false if the answer is no stream. */
  start(): boolean {
    this.#source?.begin(this);
    return this.#source !== null;
  }

  /** Aborts the answer; its last text says why. */
  abort(): void {
    this.#aborting.abort();
  }

  /**
   * Response with the events after a number; null: with all. Throws 410 if some of them are no longer kept, and
   * 400 for a number that no event has.
   */
  read(reply: ReplyTarget, after: number | null): Response {
    const next = after === null ? 0 : after + 1;
    const end = this.#first + this.#events.length;
    if (next < this.#first) throw eventsGone(this.#first);
    if (next > end)
      throw badRequest(
        `the stream has ${end} events so far, so none has the number ${after}`,
        "Last-Event-ID",
      );
    clearTimeout(this.#leaving);
    const stream = new ResponseStream(reply, framing, this.#limits, {
      pause: () => {
        reader.isPaused = true;
      },
      resume: () => {
        reader.isPaused = false;
        this.#feed(reader);
      },
      abort: (by) => {
        if (by === "slowReader") stream.end();
        this.#left(reader);
      },
    });
    const reader: Reader = { stream, next, isPaused: false, isScheduled: false };
    this.#readers.add(reader);
    reply.whenSent(() => this.#left(reader));
    const response = stream.response();
    this.#feed(reader);
    return response;
  }

  write(text: StreamText): void {
    const all = this.#rest + textOf(text);
    let from = 0;
    for (let end = all.indexOf("\n\n"); end >= 0; end = all.indexOf("\n\n", from)) {
      this.#take(all.slice(from, end + 1));
      from = end + 2;
    }
    this.#rest = all.slice(from);
    for (const reader of this.#readers) this.#feed(reader);
    this.#trim();
  }

  /** Calls at once: the stream accepts everything. */
  whenTaken(tell: () => void): void {
    tell();
  }

  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#leaving);
    for (const tell of this.#whenSent) tell();
    for (const reader of this.#readers) this.#feed(reader);
    this.#ended.resolve();
    this.#keeper.ended();
  }

  reset(): void {
    this.end();
  }

  /** Drops the first kept event. Returns false if there is none. */
  dropFirst(): boolean {
    const event = this.#events.shift();
    if (event === undefined) return false;
    this.#first++;
    if (!this.#isForgotten) this.#keeper.count(-event.length);
    return true;
  }

  /** Accepts no new readers, and keeps events only until the connected ones have them. */
  forget(): void {
    if (this.#isForgotten) return;
    this.#isForgotten = true;
    this.#keeper.count(-this.#events.reduce((sum, { length }) => sum + length, 0));
    this.#trim();
  }

  /** Takes the lines of one event, or of a comment. */
  #take(lines: string): void {
    if (lines.startsWith(":")) {
      for (const reader of this.#readers) if (this.#isUpToDate(reader)) reader.stream.write(lines);
      return;
    }
    const event = Buffer.from(`id: ${this.#first + this.#events.length}\n${lines}\n`);
    this.#events.push(event);
    if (!this.#isForgotten) this.#keeper.count(event.length);
  }

  #trim(): void {
    if (!this.#isForgotten) return;
    const needed = Math.min(...[...this.#readers].map(({ next }) => next));
    while (this.#first < needed && this.dropFirst());
  }

  #isUpToDate({ next, isPaused }: Reader): boolean {
    return !isPaused && next === this.#first + this.#events.length;
  }

  /** Writes events to a reader while it accepts them, about TURN_BYTES in each turn of the event loop. */
  #feed(reader: Reader): void {
    if (reader.isPaused || reader.isScheduled || !this.#readers.has(reader)) return;
    if (reader.next < this.#first) {
      reader.stream.end();
      this.#left(reader);
      return;
    }
    let bytes = 0;
    while (this.#first + this.#events.length > reader.next) {
      if (bytes > TURN_BYTES) {
        reader.isScheduled = true;
        setImmediate(() => {
          reader.isScheduled = false;
          this.#feed(reader);
        });
        return;
      }
      const event = this.#events[reader.next++ - this.#first]!;
      bytes += event.length;
      reader.stream.write([event]);
    }
    if (this.#isEnded) reader.stream.end();
  }

  #left(reader: Reader): void {
    if (!this.#readers.delete(reader) || this.#readers.size > 0 || this.#isEnded) return;
    const { readerlessMs } = this.#keeper;
    if (readerlessMs === null) return;
    this.#leaving = setTimeout(() => {
      this.#keeper.forget();
      this.abort();
    }, readerlessMs);
    this.#leaving.unref();
  }
}

function textOf(text: StreamText): string {
  if (typeof text === "string") return text;
  return text.map((piece) => (typeof piece === "string" ? piece : Buffer.from(piece).toString())).join("");
}

function eventsGone(first: number): ApiError {
  const message = `the stream's events before number ${first} are no longer kept`;
  return new ApiError(410, "invalid_request_error", message, { apiCode: "events_gone", shouldRetry: false });
}

import { STATUS_CODES } from "node:http";
import type { Outbox } from "./outbox.ts";
import { type BatchedStream, type StreamText, textBatch } from "./text-batch.ts";

/** Destination of a stream's text. */
export interface Outlet {
  /** Bytes that the client has not accepted. */
  readonly waitingBytes: number;
  write(text: StreamText): void;
  /** Calls `tell` once the client has accepted everything, or has disconnected. */
  whenTaken(tell: () => void): void;
  /** Ends the text. */
  end(): void;
  /** Resets the connection. */
  reset(): void;
}

/** Source of text for an outlet. */
export interface TextSource {
  begin(outlet: Outlet): void;
  /**
   * Reports back pressure: the client accepts less than was written. Called with each write as long as that
   * lasts.
   */
  onCongested(): void;
}

/** Destination of an answer's stream, as handlers know it. */
export interface ReplyTarget {
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /**
   * Sets the source of the next response, which has no body of its own. `source` receives its outlet once the
   * head is sent.
   */
  streamFrom(source: TextSource): void;
  /** Calls `tell` once the whole answer is written. */
  whenSent(tell: () => void): void;
}

/** Framing of a response, as its request demands. */
export interface ReplyForm {
  /** False for HEAD: only the head is sent. */
  readonly hasBody: boolean;
  /** True for HTTP/1.0, which has no chunks: a stream ends with its connection. */
  readonly isOld: boolean;
  /** True if the connection accepts another request afterwards. */
  keepsAlive: boolean;
}

/**
 * Answer to one request on its way: a head, then a body of known length or a stream in chunks (RFC 9112,
 * section 7.1).
 */
export class Reply implements ReplyTarget {
  readonly signal: AbortSignal;
  readonly #form: ReplyForm;
  readonly #outbox: Outbox;
  readonly #reset: () => void;
  #source: TextSource | null = null;
  readonly #whenSent: (() => void)[] = [];

  constructor(signal: AbortSignal, form: ReplyForm, outbox: Outbox, reset: () => void) {
    this.signal = signal;
    this.#form = form;
    this.#outbox = outbox;
    this.#reset = reset;
  }

  streamFrom(source: TextSource): void {
    this.#source = source;
  }

  whenSent(tell: () => void): void {
    this.#whenSent.push(tell);
  }

  /** Resolves when everything is written. */
  async send(response: Response): Promise<void> {
    const source = response.body === null ? this.#source : null;
    if (source !== null && this.#form.hasBody) await this.#sendStream(response, source);
    else await this.#sendWhole(response);
    for (const tell of this.#whenSent) tell();
  }

  #sendStream(response: Response, source: TextSource): Promise<void> {
    const { isOld } = this.#form;
    if (isOld) this.#form.keepsAlive = false;
    this.#outbox.send(headOf(response, this.#form, isOld ? "" : "transfer-encoding: chunked\r\n"));
    return new Promise((ended) =>
      source.begin(new StreamOutlet(this.#outbox, source, !isOld, ended, this.#reset)),
    );
  }

  async #sendWhole(response: Response): Promise<void> {
    const tellsLength = response.headers.has("content-length");
    // A route that states the length of a body does not hold it in memory.
    const isLong = tellsLength && response.body !== null;
    if (isLong && this.#form.hasBody) return await this.#sendLong(response);
    const body = isLong ? NO_BYTES : await response.bytes();
    const hasLength = !tellsLength && response.status !== 204 && response.status !== 304;
    const head = headOf(response, this.#form, hasLength ? `content-length: ${body.length}\r\n` : "");
    this.#outbox.send(this.#form.hasBody && body.length > 0 ? Buffer.concat([head, body]) : head);
    await new Promise<void>((taken) => this.#outbox.whenEmpty(taken));
  }

  async #sendLong(response: Response): Promise<void> {
    let left = Number(response.headers.get("content-length"));
    this.#outbox.send(headOf(response, this.#form, ""));
    for await (const piece of response.body!) {
      left -= piece.length;
      this.#outbox.send(piece);
      await new Promise<void>((taken) => this.#outbox.whenEmpty(taken));
      if (this.signal.aborted) return;
    }
    if (left !== 0) throw new Error(`a body is ${left} bytes shorter than its head says`);
  }
}

class StreamOutlet implements Outlet, BatchedStream {
  readonly outbox: Outbox;
  readonly isChunked: boolean;
  readonly reset: () => void;
  readonly #source: TextSource;
  readonly #ended: () => void;

  constructor(outbox: Outbox, source: TextSource, isChunked: boolean, ended: () => void, reset: () => void) {
    this.outbox = outbox;
    this.isChunked = isChunked;
    this.reset = reset;
    this.#source = source;
    this.#ended = ended;
  }

  get waitingBytes(): number {
    return this.outbox.waitingBytes;
  }

  write(text: StreamText): void {
    textBatch.write(this, text);
  }

  onCongested(): void {
    this.#source.onCongested();
  }

  whenTaken(tell: () => void): void {
    this.outbox.whenEmpty(tell);
  }

  end(): void {
    textBatch.end(this, this.isChunked ? LAST_CHUNK : NO_BYTES, this.#ended);
  }
}

const NO_BYTES = new Uint8Array(0);
const LAST_CHUNK = Buffer.from("0\r\n\r\n");

/** Hop-by-hop headers, which the connection sets and routes cannot. */
const HOP_HEADERS = new Set(["connection", "keep-alive", "transfer-encoding"]);

function headOf({ status, headers }: Response, form: ReplyForm, framing: string): Buffer {
  if (headers.get("connection")?.toLowerCase() === "close") form.keepsAlive = false;
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\n`;
  headers.forEach((value, name) => {
    if (!HOP_HEADERS.has(name)) head += `${name}: ${value}\r\n`;
  });
  const connection = form.keepsAlive
    ? form.isOld
      ? "connection: keep-alive\r\n"
      : ""
    : "connection: close\r\n";
  return Buffer.from(`${head}date: ${new Date().toUTCString()}\r\n${connection}${framing}\r\n`, "latin1");
}

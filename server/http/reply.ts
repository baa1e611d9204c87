import { STATUS_CODES } from "node:http";
import type { Outbox } from "./outbox.ts";

/** Text to write, or its pieces, one after the other: pieces that many texts have in common are kept as bytes, which costs less than to put
 *  a text together. */
export type StreamText = string | readonly (string | Uint8Array)[];

/** Where the text of a stream goes. */
export interface Outlet {
  /** Bytes that the client has not taken. */
  readonly waitingBytes: number;
  /** False: not everything was taken; `onTaken` is called once it is. */
  write(text: StreamText): boolean;
  onTaken(tell: () => void): void;
  /** Nothing more will be written. */
  end(): void;
  /** Resets the connection. */
  reset(): void;
}

/** How an answer to a request must look. */
export interface ReplyForm {
  /** HEAD: the head alone is sent. */
  readonly hasBody: boolean;
  /** Of HTTP/1.0, which knows no chunks: a stream ends with its connection. */
  readonly isOld: boolean;
  /** The connection takes another request afterwards. */
  keepsAlive: boolean;
}

/** The answer to one request on its way: a head, and a body of known length or a stream in chunks (RFC 9112, section 7.1). */
export class Reply {
  /** Aborted when the client is gone. */
  readonly signal: AbortSignal;
  readonly #form: ReplyForm;
  readonly #outbox: Outbox;
  readonly #reset: () => void;
  #stream: ((outlet: Outlet) => void) | null = null;

  constructor(signal: AbortSignal, form: ReplyForm, outbox: Outbox, reset: () => void) {
    this.signal = signal;
    this.#form = form;
    this.#outbox = outbox;
    this.#reset = reset;
  }

  /** The response that the route returns next has no body of its own: `begin` is given where its text goes, once its head is sent. */
  streamFrom(begin: (outlet: Outlet) => void): void {
    this.#stream = begin;
  }

  /** Resolves when everything is written. */
  async send(response: Response): Promise<void> {
    const begin = response.body === null ? this.#stream : null;
    if (begin !== null && this.#form.hasBody) await this.#sendStream(response, begin);
    else await this.#sendWhole(response);
  }

  #sendStream(response: Response, begin: (outlet: Outlet) => void): Promise<void> {
    const { isOld } = this.#form;
    if (isOld) this.#form.keepsAlive = false;
    this.#outbox.send(headOf(response, this.#form, isOld ? "" : "transfer-encoding: chunked\r\n"));
    return new Promise((ended) => begin(new StreamOutlet(this.#outbox, isOld, ended, this.#reset)));
  }

  async #sendWhole(response: Response): Promise<void> {
    // A route that tells the length of a body does not hold it in memory.
    const isLong = response.headers.has("content-length") && response.body !== null;
    if (isLong && this.#form.hasBody) return await this.#sendLong(response);
    const body = isLong ? NO_BYTES : await response.bytes();
    const hasLength = !isLong && response.status !== 204 && response.status !== 304;
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

class StreamOutlet implements Outlet {
  readonly #outbox: Outbox;
  readonly #isOld: boolean;
  readonly #ended: () => void;
  readonly reset: () => void;

  constructor(outbox: Outbox, isOld: boolean, ended: () => void, reset: () => void) {
    this.#outbox = outbox;
    this.#isOld = isOld;
    this.#ended = ended;
    this.reset = reset;
  }

  get waitingBytes(): number {
    return this.#outbox.waitingBytes;
  }

  write(text: StreamText): boolean {
    const end = this.#isOld ? null : writeChunk(text);
    if (end === EMPTY_CHUNK_BYTES) return this.waitingBytes === 0; // it would end the stream
    return end === null ? this.#outbox.send(framed(text, this.#isOld)) : this.#outbox.send(room, end);
  }

  onTaken(tell: () => void): void {
    this.#outbox.whenEmpty(tell);
  }

  end(): void {
    if (!this.#isOld) this.#outbox.send(LAST_CHUNK);
    this.#ended();
  }
}

const NO_BYTES = new Uint8Array(0);
const LAST_CHUNK = Buffer.from("0\r\n\r\n");

/** Of the connection, which no route decides. */
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

/** Texts are put together here, one at a time. */
const room = Buffer.allocUnsafe(64 * 1024);
/** A chunk's length in hexadecimal digits and the end of its line. */
const CHUNK_HEAD_BYTES = 6;
/** Its end of line is behind it too. */
const EMPTY_CHUNK_BYTES = CHUNK_HEAD_BYTES + 2;
const HEX_DIGITS = Buffer.from("0123456789abcdef");
const CR = 13;
const LF = 10;

/** Writes a chunk of the text into `room`; where it ends, or null: it may not fit. */
function writeChunk(text: StreamText): number | null {
  const end =
    typeof text === "string" ? writePiece(text, CHUNK_HEAD_BYTES) : writePieces(text, CHUNK_HEAD_BYTES);
  if (end === null) return null;
  const length = end - CHUNK_HEAD_BYTES;
  for (let digit = 0; digit < 4; digit++) room[digit] = HEX_DIGITS[(length >> (12 - 4 * digit)) & 15]!;
  room[4] = room[end] = CR;
  room[5] = room[end + 1] = LF;
  return end + 2;
}

function writePieces(pieces: readonly (string | Uint8Array)[], from: number): number | null {
  let at: number | null = from;
  for (const piece of pieces) {
    at = writePiece(piece, at);
    if (at === null) return null;
  }
  return at;
}

function writePiece(piece: string | Uint8Array, from: number): number | null {
  const bytesMax = typeof piece === "string" ? piece.length * 3 : piece.length;
  if (from + bytesMax + 2 > room.length) return null;
  if (typeof piece !== "string") {
    room.set(piece, from);
    return from + piece.length;
  }
  // Most tokens are a few letters, which are written here in a fraction of the time of a call.
  for (let at = 0; at < piece.length; at++) {
    const code = piece.charCodeAt(at);
    if (code > 127) return from + room.write(piece, from);
    room[from + at] = code;
  }
  return from + piece.length;
}

/** The text in bytes of its own, in a chunk unless it `isOld`. */
function framed(text: StreamText, isOld: boolean): Uint8Array {
  const pieces = typeof text === "string" ? [text] : text;
  const bytes = Buffer.concat(
    pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)),
  );
  if (isOld || bytes.length === 0) return bytes;
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

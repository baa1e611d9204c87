import type { Outbox } from "./outbox.ts";

/**
 * Text to write, or its pieces in order. Pieces that many texts share are kept as bytes, which costs less
 * than joining strings.
 */
export type StreamText = string | readonly (string | Uint8Array)[];

/** Stream whose texts are sent in batches. */
export interface BatchedStream {
  readonly outbox: Outbox;
  /** Each text is a chunk (RFC 9112, section 7.1). */
  readonly isChunked: boolean;
  /** Reports that the client did not accept everything sent. */
  onCongested(): void;
}

/** Size of the buffer: enough for the tokens that one step adds to some hundred streams. */
const ROOM_BYTES = 256 * 1024;
/** Four hexadecimal digits of a chunk's length, and the line's end. */
const CHUNK_HEAD_BYTES = 6;
const CHUNK_BYTES_MAX = 0xffff;
const HEX_DIGITS = Buffer.from("0123456789abcdef");
const CR = 13;
const LF = 10;

/**
 * Texts of all streams, sent together after the code that writes them has ended. A step brings a token for
 * each stream. Computing for all of them first and making the system calls afterwards keeps the processor's
 * caches warm for both.
 */
export class TextBatch {
  readonly #room = Buffer.allocUnsafe(ROOM_BYTES);
  #end = 0;
  /** Streams with bytes in the buffer `#room`, in the order written, and the end of each one's bytes. */
  readonly #streams: BatchedStream[] = [];
  readonly #ends: number[] = [];
  /** Callbacks to run once everything is sent. */
  #afterwards: (() => void)[] = [];

  write(stream: BatchedStream, text: StreamText): void {
    if (this.#put(stream, text)) return;
    const sent = this.#send();
    if (!this.#put(stream, text) && !stream.outbox.send(longText(stream, text))) sent.congested.push(stream);
    tell(sent);
  }

  /** Writes raw bytes, and calls `afterwards` once they are sent. */
  end(stream: BatchedStream, bytes: Uint8Array, afterwards: () => void): void {
    if (this.#end + bytes.length > ROOM_BYTES) this.flush();
    this.#room.set(bytes, this.#end);
    this.#afterwards.push(afterwards);
    this.#note(stream, this.#end + bytes.length);
  }

  /** Sends the written texts. */
  flush(): void {
    tell(this.#send());
  }

  #send(): Sent {
    const congested: BatchedStream[] = [];
    let from = 0;
    for (const [at, stream] of this.#streams.entries()) {
      const to = this.#ends[at]!;
      if (!stream.outbox.send(this.#room, from, to)) congested.push(stream);
      from = to;
    }
    const afterwards = this.#afterwards;
    this.#streams.length = this.#ends.length = this.#end = 0;
    this.#afterwards = [];
    return { congested, afterwards };
  }

  /** Returns false if the text may not fit. */
  #put(stream: BatchedStream, text: StreamText): boolean {
    const from = stream.isChunked ? this.#end + CHUNK_HEAD_BYTES : this.#end;
    const end = typeof text === "string" ? this.#putPiece(text, from) : this.#putPieces(text, from);
    if (end === null || end - from > CHUNK_BYTES_MAX) return false;
    if (end === from) return true; // an empty chunk would end the stream
    if (stream.isChunked) this.#frame(from, end);
    this.#note(stream, stream.isChunked ? end + 2 : end);
    return true;
  }

  #putPieces(pieces: readonly (string | Uint8Array)[], from: number): number | null {
    let end: number | null = from;
    for (const piece of pieces) {
      end = this.#putPiece(piece, end);
      if (end === null) return null;
    }
    return end;
  }

  #putPiece(piece: string | Uint8Array, from: number): number | null {
    const room = this.#room;
    const bytesMax = typeof piece === "string" ? piece.length * 3 : piece.length;
    if (from + bytesMax + 2 > ROOM_BYTES) return null;
    if (typeof piece !== "string") {
      room.set(piece, from);
      return from + piece.length;
    }
    // Writes ASCII here: most tokens are a few letters, for which a native call costs more.
    for (let at = 0; at < piece.length; at++) {
      const code = piece.charCodeAt(at);
      if (code > 127) return from + room.write(piece, from);
      room[from + at] = code;
    }
    return from + piece.length;
  }

  #frame(from: number, end: number): void {
    const room = this.#room;
    for (let digit = 1; digit <= 4; digit++) {
      room[from - 2 - digit] = HEX_DIGITS[((end - from) >> (4 * (digit - 1))) & 15]!;
    }
    room[from - 2] = room[end] = CR;
    room[from - 1] = room[end + 1] = LF;
  }

  #note(stream: BatchedStream, end: number): void {
    const last = this.#streams.length - 1;
    this.#end = end;
    if (this.#streams[last] === stream) {
      this.#ends[last] = end;
      return;
    }
    if (last < 0) queueMicrotask(() => this.flush());
    this.#streams.push(stream);
    this.#ends.push(end);
  }
}

/** Callbacks to run after the flush and the next write (they may write again). */
interface Sent {
  readonly congested: BatchedStream[];
  readonly afterwards: readonly (() => void)[];
}

function tell({ congested, afterwards }: Sent): void {
  for (const stream of congested) stream.onCongested();
  for (const call of afterwards) call();
}

function longText({ isChunked }: BatchedStream, text: StreamText): Uint8Array {
  const pieces = typeof text === "string" ? [text] : text;
  const bytes = Buffer.concat(
    pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)),
  );
  if (!isChunked || bytes.length === 0) return bytes;
  return Buffer.concat([Buffer.from(`${bytes.length.toString(16)}\r\n`), bytes, Buffer.from("\r\n")]);
}

/** Single batch for all connections. */
export const textBatch = new TextBatch();

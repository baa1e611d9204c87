import { yieldIfSpent } from "../../base/time-slice.ts";
import { bodyPieces, type PaceLimits } from "./body-pieces.ts";
import { ApiError, badRequest, quote, unavailable } from "./errors.ts";
import type { JsonLimits } from "./json/parse.ts";
import type { JsonReader } from "./json/reader.ts";

/** Limits of request bodies. */
export interface BodyLimits extends JsonLimits, PaceLimits {
  readonly bodyBytesMax: number;
  /** Bytes of all bodies together that are being read or parsed. */
  readonly bodiesBytesMax: number;
}

/**
 * Reads bodies of requests. Memory for them is bounded, and no body blocks the thread that sends all answers.
 */
export class BodyReader {
  readonly #limits: BodyLimits;
  readonly #json: JsonReader;
  #heldBytes = 0;

  constructor(limits: BodyLimits, json: JsonReader) {
    this.#limits = limits;
    this.#json = json;
  }

  /** Reads a request's JSON object. Rejects with 400, 408, 413, 415 or 503. */
  async readJson(request: Request, takesAnyType = false): Promise<Record<string, unknown>> {
    expectJsonBody(request, takesAnyType);
    const body = new Blocks((bytes) => this.#hold(bytes));
    try {
      await readBytes(request, body, this.#limits);
      const value = await this.#json.read(body.whole(), this.#limits);
      if (typeof value !== "object" || value === null || Array.isArray(value)) {
        throw badRequest(`the request body must be a JSON object, but is ${quote(value)}`);
      }
      return value as Record<string, unknown>;
    } finally {
      this.#heldBytes -= body.heldBytes;
    }
  }

  /** Throws 503 if other bodies hold all the memory. */
  #hold(bytes: number): void {
    const { bodiesBytesMax } = this.#limits;
    if (this.#heldBytes + bytes > bodiesBytesMax) {
      const message = `the bodies of the requests that are being read have ${bodiesBytesMax} bytes together at most; try again`;
      throw unavailable("server_overloaded", message, 1);
    }
    this.#heldBytes += bytes;
  }
}

/** Throws 415 for a body that is not plain JSON, by its headers. */
export function expectJsonBody({ headers }: Request, takesAnyType = false): void {
  if (!takesAnyType) expectJson(headers.get("content-type"));
  expectPlain(headers.get("content-encoding"));
}

function expectJson(contentType: string | null): void {
  const [type = "", ...parameters] = (contentType ?? "").toLowerCase().split(";");
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith("charset="));
  const charsetFits = charset === undefined || /^charset="?utf-?8"?$/.test(charset);
  if (type.trim() === "application/json" && charsetFits) return;
  throw new ApiError(
    415,
    "invalid_request_error",
    `the content-type must be application/json in UTF-8, but is ${contentType === null ? "missing" : quote(contentType)}`,
  );
}

function expectPlain(contentEncoding: string | null): void {
  if (contentEncoding === null || contentEncoding.trim().toLowerCase() === "identity") return;
  throw new ApiError(
    415,
    "invalid_request_error",
    `the request body must come uncompressed, but the content-encoding is ${quote(contentEncoding)}`,
  );
}

/** Bytes of a body that do not count towards `bodiesBytesMax`. Further bytes count as they arrive. */
const SMALL_BYTES = 64 * 1024;

/**
 * Blocks keep received bytes in place; a single growing buffer would copy them again and block the thread.
 */
const BLOCK_BYTES_MAX = 256 * 1024;

/** Bytes that arrive in pieces of any size, stored in blocks. */
class Blocks {
  readonly #hold: (bytes: number) => void;
  readonly #blocks: Uint8Array<ArrayBuffer>[] = [];
  #length = 0;
  /** Bytes of all blocks. */
  #room = 0;
  /** Bytes reported to `hold`. */
  heldBytes = 0;

  /** Calls `hold` before it allocates room beyond that of a small body; `hold` may throw. */
  constructor(hold: (bytes: number) => void) {
    this.#hold = hold;
  }

  get length(): number {
    return this.#length;
  }

  add(piece: Uint8Array): void {
    for (let from = 0; from < piece.length; ) {
      if (this.#length === this.#room) this.#addBlock(piece.length - from);
      const last = this.#blocks[this.#blocks.length - 1]!;
      const free = this.#room - this.#length;
      const part = piece.subarray(from, from + free);
      last.set(part, last.length - free);
      this.#length += part.length;
      from += part.length;
    }
  }

  #addBlock(bytesNext: number): void {
    const bytes = Math.min(BLOCK_BYTES_MAX, Math.max(bytesNext, this.#room, 4096));
    const more = Math.max(0, this.#room + bytes - SMALL_BYTES) - this.heldBytes;
    this.#hold(more);
    this.heldBytes += more;
    this.#blocks.push(new Uint8Array(bytes));
    this.#room += bytes;
  }

  /** Returns the blocks in order. Nothing may be added any more. */
  whole(): Uint8Array<ArrayBuffer>[] {
    const last = this.#blocks.pop();
    if (last !== undefined) this.#blocks.push(last.subarray(0, last.length - (this.#room - this.#length)));
    return this.#blocks;
  }
}

async function readBytes(request: Request, body: Blocks, limits: BodyLimits): Promise<void> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > limits.bodyBytesMax) throw bodyTooLarge(`${announced} bytes`, limits);
  for await (const piece of bodyPieces(request, limits)) {
    if (body.length + piece.byteLength > limits.bodyBytesMax) throw bodyTooLarge("more", limits);
    body.add(piece);
    await yieldIfSpent(); // pieces may be a byte each
  }
}

function bodyTooLarge(given: string, limits: BodyLimits): ApiError {
  const message = `the request body may have ${limits.bodyBytesMax} bytes at most, but has ${given}`;
  return new ApiError(413, "invalid_request_error", message, { headers: { connection: "close" } });
}

import { ApiError, badRequest } from "../../http/errors.ts";

const TAB = 0x09;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Bytes of a body beside its requests, with two for each request. */
const REST_BYTES_MAX = 2 ** 20;
/** Text before the list of requests, whose length is TAIL at most. */
const LIST = /"requests" ?: ?$/;
const TAIL = 13;

/**
 * Splits the JSON of a batch, `{"requests": [{…}, {…}]}`, into its requests while it arrives, so that memory holds
 * one of them. Line ends between values become spaces. Text that is not JSON may pass: the reader of the requests and
 * of the rest refuses it.
 */
export class RequestSplitter {
  readonly #requestBytesMax: number;
  readonly #onRequest: (bytes: Uint8Array) => void;
  /** Bytes beside the requests, each of which is `{}` there. */
  readonly #rest = new Rest();
  /** Parts of the request that has begun. */
  #parts: Uint8Array[] = [];
  #partsBytes = 0;
  #count = 0;
  #depth = 0;
  #isInList = false;
  #isInString = false;
  #isEscaped = false;

  constructor(requestBytesMax: number, onRequest: (bytes: Uint8Array) => void) {
    this.#requestBytesMax = requestBytesMax;
    this.#onRequest = onRequest;
  }

  /** Reads the next bytes of the body, and changes them. Throws 400 or 413. */
  write(bytes: Uint8Array): void {
    /** Beginning of the request's part in these bytes. */
    let from = 0;
    for (let at = 0; at < bytes.length; at++) {
      const byte = bytes[at]!;
      const isInRequest = this.#isInList && this.#depth > 2;
      if (this.#isInString) {
        if (this.#isEscaped) this.#isEscaped = false;
        else if (byte === BACKSLASH) this.#isEscaped = true;
        else if (byte === QUOTE) this.#isInString = false;
        if (!isInRequest) this.#rest.add(byte);
        continue;
      }
      const isSpace = byte === SPACE || byte === TAB || byte === LINE_FEED || byte === CARRIAGE_RETURN;
      if (isSpace) bytes[at] = SPACE;
      if (byte === QUOTE) this.#isInString = true;
      if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) this.#depth += 1;
      if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) this.#depth -= 1;
      if (isInRequest) {
        if (this.#depth > 2) continue;
        this.#addPart(bytes.slice(from, at + 1));
        this.#endRequest();
      } else if (this.#isInList && byte === OPEN_OBJECT) from = at;
      else {
        if (this.#isInList && !isSpace && byte !== COMMA && byte !== CLOSE_ARRAY)
          throw badRequest(`requests[${this.#count}] must be an object`, `requests[${this.#count}]`);
        if (byte === CLOSE_ARRAY) this.#isInList = false;
        if (byte === OPEN_ARRAY && this.#depth === 2) this.#isInList = LIST.test(this.#rest.tail());
        if (!isSpace || this.#rest.last !== SPACE) this.#rest.add(bytes[at]!);
      }
    }
    if (this.#isInList && this.#depth > 2) this.#addPart(bytes.slice(from));
  }

  /** JSON of the body with `{}` in place of each request. */
  end(): string {
    return this.#rest.text();
  }

  #addPart(part: Uint8Array): void {
    this.#parts.push(part);
    this.#partsBytes += part.length;
    if (this.#partsBytes > this.#requestBytesMax)
      throw tooLarge(
        `requests[${this.#count}] may have ${this.#requestBytesMax} bytes at most, but has more`,
      );
  }

  #endRequest(): void {
    const [first, ...others] = this.#parts;
    this.#onRequest(others.length === 0 ? first! : Buffer.concat(this.#parts));
    this.#parts = [];
    this.#partsBytes = 0;
    this.#count += 1;
    this.#rest.add(OPEN_OBJECT);
    this.#rest.add(CLOSE_OBJECT);
  }
}

/** Growing bytes. */
class Rest {
  #bytes = new Uint8Array(1024);
  #length = 0;

  get last(): number | undefined {
    return this.#bytes[this.#length - 1];
  }

  add(byte: number): void {
    if (this.#length === REST_BYTES_MAX)
      throw tooLarge(`a batch may have ${REST_BYTES_MAX} bytes beside its requests, but has more`);
    if (this.#length === this.#bytes.length) {
      const longer = new Uint8Array(2 * this.#length);
      longer.set(this.#bytes);
      this.#bytes = longer;
    }
    this.#bytes[this.#length++] = byte;
  }

  /** Last characters. */
  tail(): string {
    return Buffer.from(this.#bytes.subarray(Math.max(0, this.#length - TAIL), this.#length)).toString();
  }

  text(): string {
    return Buffer.from(this.#bytes.subarray(0, this.#length)).toString();
  }
}

export function tooLarge(message: string): ApiError {
  return new ApiError(413, "invalid_request_error", message, { headers: { connection: "close" } });
}

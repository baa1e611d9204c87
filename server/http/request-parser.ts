/** Head of a request. */
export interface RequestHead {
  /** Version of the protocol. */
  readonly major: number;
  readonly minor: number;
  readonly method: string;
  /** Target of the request line: usually a path. */
  readonly target: string;
  /** Names and values alternating, as received. */
  readonly headers: readonly string[];
  /** True if the client means to use its connection again. */
  readonly keepsAlive: boolean;
}

/** Events of requests, in the order of their bytes. */
export interface RequestEvents {
  onHead(head: RequestHead): void;
  /** Bytes of the body, without its framing. */
  onBody(bytes: Uint8Array<ArrayBuffer>): void;
  onEnd(): void;
}

/** Reason why bytes are no request; `code` is llhttp's. */
export interface ParseFailure {
  readonly code: string;
  readonly reason: string;
}

/** Bytes that a head may have. */
export const HEAD_BYTES_MAX = 16 * 1024;

/** llhttp as Node and Bun expose it; it has no types of its own. */
interface Llhttp {
  // biome-ignore lint/suspicious/noExplicitAny: the functions that it calls are set as fields, by number
  new (): any;
  readonly REQUEST: number;
  readonly kOnMessageBegin: number;
  readonly kOnHeaders: number;
  readonly kOnHeadersComplete: number;
  readonly kOnBody: number;
  readonly kOnMessageComplete: number;
}

const binding = (process as unknown as { binding(name: string): unknown }).binding("http_parser");
const { HTTPParser, methods } = binding as {
  readonly HTTPParser: Llhttp;
  readonly methods: readonly string[];
};

/** Parses the requests of a connection: llhttp, the parser of `node:http`, in its strict form. */
export class RequestParser {
  readonly #parser = new HTTPParser();
  /** Bytes of an unfinished body's framing since its last content: trailers, and chunk extensions. */
  #frameBytes = 0;
  #isInBody = false;
  #isInHead = false;

  constructor(events: RequestEvents) {
    // Headers that llhttp reports before a head is complete: it holds 32 at once.
    let early: string[] = [];
    let earlyTarget = "";
    this.#parser.initialize(HTTPParser.REQUEST, {}, HEAD_BYTES_MAX, 0);
    this.#parser[HTTPParser.kOnMessageBegin] = (): void => {
      this.#isInHead = true;
    };
    this.#parser[HTTPParser.kOnHeaders] = (headers: readonly string[], target: string): void => {
      if (this.#isInBody) return; // trailers of a chunked body, which a server may drop (RFC 9110, section 6.5.1)
      early.push(...headers);
      earlyTarget += target;
    };
    this.#parser[HTTPParser.kOnHeadersComplete] = (
      major: number,
      minor: number,
      headers: readonly string[] | null,
      method: number,
      target: string | null,
      _status: null,
      _reason: null,
      _offersUpgrade: boolean,
      keepsAlive: boolean,
    ): number => {
      const head = { major, minor, method: methods[method]!, keepsAlive };
      events.onHead({ ...head, headers: headers ?? early, target: target ?? earlyTarget });
      early = [];
      earlyTarget = "";
      this.#isInBody = true;
      this.#isInHead = false;
      this.#frameBytes = 0;
      return 0; // a body follows if the head says so
    };
    this.#parser[HTTPParser.kOnBody] = (bytes: Uint8Array<ArrayBuffer>): void => {
      this.#frameBytes = 0;
      events.onBody(bytes);
    };
    this.#parser[HTTPParser.kOnMessageComplete] = (): void => {
      this.#isInBody = false;
      this.#isInHead = false;
      events.onEnd();
    };
  }

  /** True after a head has begun, perhaps with the line breaks before it, until it has ended. */
  get isInHead(): boolean {
    return this.#isInHead;
  }

  /** Emits all events of these bytes before it returns. After a failure nothing more may be pushed. */
  push(bytes: Uint8Array): ParseFailure | null {
    this.#frameBytes += bytes.length;
    this.#isInHead ||= !this.#isInBody;
    for (let rest = bytes; rest.length > 0; ) {
      // llhttp stops after a request that offers another protocol; this server never switches protocols.
      const taken: number | (Error & ParseFailure) = this.#parser.execute(rest);
      if (typeof taken !== "number") return taken;
      rest = rest.subarray(taken);
    }
    if (!this.#isInBody || this.#frameBytes <= HEAD_BYTES_MAX) return null;
    return { code: "HPE_HEADER_OVERFLOW", reason: "too many bytes around a body" };
  }

  close(): void {
    this.#parser.close();
  }
}

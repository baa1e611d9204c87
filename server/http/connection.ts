import { ApiError, errorResponse } from "./errors.ts";
import { HEAD_TOO_SLOW, headerOf, refusalOf, requestOf } from "./head.ts";
import { Outbox } from "./outbox.ts";
import { Reply, type ReplyForm } from "./reply.ts";
import { RequestBody } from "./request-body.ts";
import { type ParseFailure, type RequestHead, RequestParser } from "./request-parser.ts";
import { inTurn } from "./turns.ts";

/** Handler that answers requests. */
export type Serve = (request: Request) => Response | Promise<Response>;

const replies = new WeakMap<Request, Reply>();

/** Reply of a request that arrived on a connection. */
export function replyTo(request: Request): Reply {
  return replies.get(request)!;
}

/**
 * Seconds that a connection waits for its client: for a request, for more of one, or for it to read an
 * answer.
 */
export const CLIENT_WAIT_S = 240;
/** Time that the head of a request may take, from its first byte. */
export const HEAD_WAIT_MS = 10_000;
/**
 * Seconds to read on after an answer that came before its request's end: an immediate close sends RST and
 * drops the answer.
 */
const LINGER_S = 4;
/** Seconds that a client has for one more request when its connection is to end. */
const LEAVE_S = 10;
/** Bytes that one turn of the event loop parses. */
const PIECE_BYTES = 16 * 1024;
const CONTINUE = Buffer.from("HTTP/1.1 100 Continue\r\n\r\n");

/** Limits of a connection's waits for its client. */
export interface ClientWaits {
  readonly clientWaitS: number;
  readonly headWaitMs: number;
}

/** Request of a connection, with the state of its answer. */
interface Turn {
  /** Head of a request, or the refusal of bytes that are no request. */
  readonly head: RequestHead | ApiError;
  readonly body: RequestBody;
  readonly form: ReplyForm;
  readonly client: AbortController;
  isBegun: boolean;
  /** True while the client waits for `100 Continue` before it sends the body. */
  expectsContinue: boolean;
}

/**
 * HTTP/1.1 connection of one client (RFC 9112). The server answers pipelined requests in their order. It ends
 * the connection after an answer if the client or the route asks for that, or if the received bytes are not HTTP.
 * It also does so if it answered before the request's end, when it stops, and after a stream of HTTP/1.0.
 */
export class Connection {
  readonly #socket: Bun.Socket<unknown>;
  readonly #serve: Serve;
  readonly #waits: ClientWaits;
  readonly #onIdle: (isIdle: boolean) => void;
  readonly #outbox: Outbox;
  readonly #parser: RequestParser;
  /** Requests in order of arrival; the first is being answered. */
  readonly #turns: Turn[] = [];
  /** Received bytes that are not parsed yet. */
  #unread: Uint8Array[] = [];
  /** True while a turn of the event loop is scheduled to parse them. */
  #isDue = false;
  /** True while received bytes are still parsed. */
  #isOpen = true;
  #isPaused = false;
  /** True if the next request is the last one. */
  #isLeaving = false;
  #headTimer: ReturnType<typeof setTimeout> | null = null;

  /** Calls `onIdle` when the first request arrives, and when the last one is answered. */
  constructor(
    socket: Bun.Socket<unknown>,
    serve: Serve,
    waits: ClientWaits,
    onIdle: (isIdle: boolean) => void,
  ) {
    this.#socket = socket;
    this.#serve = serve;
    this.#waits = waits;
    this.#onIdle = onIdle;
    this.#outbox = new Outbox(
      socket,
      () => this.#pace(),
      () => queueMicrotask(() => socket.terminate()),
    );
    this.#parser = new RequestParser({
      onHead: (head) => this.#queue(head),
      onBody: (bytes) => this.#turns.at(-1)!.body.push(bytes),
      onEnd: () => this.#turns.at(-1)!.body.end(),
    });
    socket.timeout(waits.clientWaitS);
  }

  /** Accepts received bytes. */
  receive(bytes: Uint8Array): void {
    if (!this.#isOpen) return;
    this.#unread.push(bytes);
    this.#pace();
  }

  /** Handles the socket's drain event: it accepts bytes again. */
  drained(): void {
    this.#outbox.flush();
    this.#pace();
  }

  /** Handles a client that exceeded its time. */
  timedOut(): void {
    if (this.#turns.length === 0 && this.#isOpen) this.#socket.end();
    else this.#socket.terminate();
  }

  /** Handles the client's disconnect. */
  closed(): void {
    this.#stopReading();
    this.#outbox.close();
    this.#parser.close();
    for (const { body, client } of this.#turns.splice(0)) {
      body.fail(new Error("the connection was closed"));
      client.abort();
    }
  }

  /** Closes the connection at once. Called only while it answers no request. */
  closeIdle(): void {
    this.#socket.terminate();
  }

  /** Ends the connection after the answer in progress. */
  end(): void {
    for (const { form } of this.#turns) form.keepsAlive = false;
    if (this.#turns.length === 0) this.#socket.end();
  }

  /**
   * Ends the connection after one more request, whose answer says so, or when none comes for LEAVE_S. The head of
   * an answer in progress has told its client that the connection stays.
   */
  leave(): void {
    this.#isLeaving = true;
    this.#pace();
  }

  #queue(head: RequestHead | ApiError): Turn {
    const turn = this.#turnOf(head);
    this.#turns.push(turn);
    if (this.#turns.length === 1) this.#onIdle(false);
    return turn;
  }

  #turnOf(head: RequestHead | ApiError): Turn {
    const asked = head instanceof ApiError ? null : head;
    const body = new RequestBody(() => this.#continue(turn));
    const turn: Turn = {
      head,
      body,
      form: {
        hasBody: asked?.method !== "HEAD",
        isOld: asked?.minor === 0,
        keepsAlive: asked?.keepsAlive === true && !this.#isLeaving,
      },
      client: new AbortController(),
      isBegun: false,
      expectsContinue:
        asked !== null && asked.minor > 0 && headerOf(asked, "expect")?.toLowerCase() === "100-continue",
    };
    return turn;
  }

  #stopReading(): void {
    this.#isOpen = false;
    this.#unread = [];
    this.#stopHeadTimer();
  }

  /** Parses one piece of the received bytes. */
  #read(): void {
    this.#isDue = false;
    const [bytes] = this.#unread;
    if (bytes === undefined) return;
    if (bytes.length > PIECE_BYTES) this.#unread[0] = bytes.subarray(PIECE_BYTES);
    else this.#unread.shift();
    const failure = this.#parser.push(bytes.subarray(0, PIECE_BYTES));
    if (failure !== null) this.#refuse(failure);
    this.#advance();
  }

  /** Limits the time of a head that has begun, as long as its connection is read. */
  #timeHead(isRead: boolean): void {
    if (!isRead || !this.#parser.isInHead) this.#stopHeadTimer();
    else this.#headTimer ??= setTimeout(() => this.#headTooSlow(), this.#waits.headWaitMs);
  }

  #stopHeadTimer(): void {
    if (this.#headTimer !== null) clearTimeout(this.#headTimer);
    this.#headTimer = null;
  }

  #headTooSlow(): void {
    this.#refuse({ code: HEAD_TOO_SLOW, reason: `it may take ${this.#waits.headWaitMs} ms` });
    this.#advance();
  }

  #refuse(failure: ParseFailure): void {
    this.#stopReading();
    const last = this.#turns.at(-1);
    if (last !== undefined && !last.body.isComplete) {
      last.body.fail(new Error(failure.reason));
      last.form.keepsAlive = false;
    } else if (last?.form.keepsAlive !== false) {
      this.#queue(refusalOf(failure)).body.end();
    } // else the client said that nothing would follow
  }

  #advance(): void {
    const turn = this.#turns[0];
    if (turn !== undefined && !turn.isBegun) {
      turn.isBegun = true;
      this.#answer(turn).catch((error: Error) => {
        console.error("an answer could not be sent:", error);
        this.#socket.terminate();
      });
    }
    this.#pace();
  }

  async #answer(turn: Turn): Promise<void> {
    const { form, body, client } = turn;
    const reply = new Reply(client.signal, form, this.#outbox, () => this.#socket.terminate());
    const response = await this.#respond(turn, reply);
    if (!body.isComplete) {
      body.drop();
      form.keepsAlive = false;
    }
    await reply.send(response);
    if (client.signal.aborted) return;
    if (!form.hasBody) client.abort(); // ends a stream that only a head was asked of
    this.#turns.shift();
    this.#outbox.whenEmpty(() => {
      if (this.#turns.length === 0) this.#onIdle(true);
    });
    if (!form.keepsAlive) this.#finish(body.isComplete);
    else if (this.#turns.length === 0) this.#pace();
    else inTurn(() => this.#advance());
  }

  #respond({ head, body, client }: Turn, reply: Reply): Response | Promise<Response> {
    if (head instanceof ApiError) return errorResponse(head);
    let request: Request;
    try {
      request = requestOf(head, body, client.signal);
    } catch (error) {
      return errorResponse(error as ApiError);
    }
    replies.set(request, reply);
    return this.#serve(request);
  }

  /** Handles a route that reads the body. */
  #continue(turn: Turn): void {
    if (turn.expectsContinue) this.#outbox.send(CONTINUE);
    turn.expectsContinue = false;
    this.#pace();
  }

  #finish(isRead: boolean): void {
    this.#stopReading();
    for (const { client } of this.#turns.splice(0)) client.abort();
    this.#outbox.whenEmpty(() => {
      if (isRead) {
        this.#socket.end();
        return;
      }
      this.#socket.shutdown();
      this.#socket.timeout(LINGER_S);
    });
    this.#pace();
  }

  /**
   * Applies back pressure: reads no faster than requests are answered. Only waits for the client have a time
   * limit.
   */
  #pace(): void {
    const [turn] = this.#turns;
    const waits = this.#turns.length > 1 || turn?.body.isFull === true;
    if (!waits && !this.#isDue && this.#unread.length > 0) {
      this.#isDue = true;
      inTurn(() => this.#read());
    }
    const pauses = waits || this.#unread.length > 0;
    if (pauses !== this.#isPaused) {
      this.#isPaused = pauses;
      if (pauses) this.#socket.pause();
      else this.#socket.resume();
    }
    this.#timeHead(this.#isOpen && !waits);
    if (!this.#isOpen && turn === undefined) return;
    const waitsForClient = turn === undefined || !turn.body.isComplete || this.#outbox.waitingBytes > 0;
    const { clientWaitS } = this.#waits;
    const waitS = this.#isLeaving && turn === undefined ? Math.min(LEAVE_S, clientWaitS) : clientWaitS;
    this.#socket.timeout(waitsForClient ? waitS : 0);
  }
}

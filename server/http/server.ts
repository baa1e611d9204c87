import { readFileSync } from "node:fs";
import { CLIENT_WAIT_S, type ClientWaits, Connection, HEAD_WAIT_MS, type Serve } from "./connection.ts";
import { type Admission, Crowd, type CrowdLimits } from "./crowd.ts";

/** Response that refuses a connection beyond a limit, sent before anything is read of it. */
function refusalText(message: string): string {
  const error = { message, type: "overloaded_error", param: null, code: "server_overloaded" };
  const body = JSON.stringify({ error });
  return `HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
}

export interface ServerOptions extends Partial<ClientWaits>, Partial<CrowdLimits> {
  /** Listening socket of the address, from another process; absent: a new one. */
  readonly descriptor?: number;
}

/** Default share of all connections that one address may have. */
const ADDRESS_PART = 1 / 4;

/** Listens, and owns the connections of clients. */
export class HttpServer {
  /** Handler of requests; an assignment applies to all later requests. */
  serve: Serve;
  readonly hostname: string;
  readonly port: number;
  readonly #listener: Bun.TCPSocketListener<Connection | null>;
  readonly #crowd: Crowd<Connection>;
  readonly #waits: ClientWaits;
  readonly #refusals: Readonly<Record<Exclude<Admission, "taken">, string>>;
  readonly #stopped = Promise.withResolvers<void>();
  #isStopping = false;
  #isLeaving = false;

  /** Throws the errors of Bun.listen. */
  constructor(hostname: string, port: number, serve: Serve, options: ServerOptions = {}) {
    this.serve = serve;
    const {
      clientWaitS = CLIENT_WAIT_S,
      headWaitMs = HEAD_WAIT_MS,
      connections = connectionsMax(),
    } = options;
    const { connectionsPerAddress = Math.max(1, Math.floor(connections * ADDRESS_PART)) } = options;
    this.#waits = { clientWaitS, headWaitMs };
    this.#crowd = new Crowd({ connections, connectionsPerAddress });
    this.#refusals = {
      full: refusalText("the server has as many connections as it can hold"),
      addressFull: refusalText(
        `the server takes ${connectionsPerAddress} connections from one address at most; its owner can change that with --connections-per-address`,
      ),
    };
    const { descriptor } = options;
    // Bun accepts a listening socket as `fd`, which its types lack.
    const address = descriptor === undefined ? { hostname, port } : ({ fd: descriptor } as never);
    this.#listener = Bun.listen<Connection | null>({
      ...address,
      socket: {
        open: (socket) => this.#opened(socket),
        data: ({ data }, bytes) => data?.receive(bytes),
        drain: ({ data }) => data?.drained(),
        timeout: ({ data }) => data?.timedOut(),
        // `close` also reports whatever ends a connection.
        error: () => {},
        close: ({ data }) => this.#closed(data),
      },
    });
    this.hostname = this.#listener.hostname ?? hostname;
    this.port = this.#listener.port ?? port;
  }

  /** Descriptor of the listening socket. */
  get descriptor(): number {
    return (this.#listener as unknown as { readonly fd: number }).fd; // missing in Bun's types
  }

  get origin(): string {
    const { hostname, port } = this;
    return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  }

  /** Accepts no more connections and requests; resolves when the answers in progress have ended. */
  stop(): Promise<void> {
    this.#listener.stop();
    this.#isStopping = true;
    for (const connection of this.#crowd) connection.end();
    if (this.#crowd.size === 0) this.#stopped.resolve();
    return this.#stopped.promise;
  }

  /**
   * Leaves the address to another process. Each connection ends after one more request, or when its client asks
   * nothing for a while; resolves when all have ended.
   */
  leave(): Promise<void> {
    this.#listener.stop();
    this.#isStopping = true;
    this.#isLeaving = true;
    for (const connection of this.#crowd) connection.leave();
    if (this.#crowd.size === 0) this.#stopped.resolve();
    return this.#stopped.promise;
  }

  /** Ends every connection now. */
  async kill(): Promise<void> {
    const stopped = this.stop();
    this.#listener.stop(true);
    await stopped;
  }

  #opened(socket: Bun.Socket<Connection | null>): void {
    socket.data = null;
    const address = socket.remoteAddress;
    const admission = this.#crowd.admit(address);
    if (admission !== "taken") {
      socket.end(this.#refusals[admission]);
      return;
    }
    const connection = new Connection(
      socket,
      (request) => this.serve(request),
      this.#waits,
      (isIdle) => this.#crowd.setIdle(connection, isIdle),
    );
    socket.data = connection;
    this.#crowd.add(connection, address);
    if (this.#isLeaving) connection.leave();
  }

  #closed(connection: Connection | null): void {
    if (connection === null) return;
    connection.closed();
    this.#crowd.delete(connection);
    if (this.#isStopping && this.#crowd.size === 0) this.#stopped.resolve();
  }
}

/** Descriptors reserved for everything but connections: engines, workers, and the files of jobs. */
const OTHERS = 64;
/** Share reserved for them in addition, which matters if the limit is high. */
const OTHERS_PART = 1 / 16;
const LEAST = 16;

/**
 * Connections that this process can hold. Without a free descriptor the server can neither accept nor refuse
 * the next one. The kernel then reports it again and again, and the event loop does nothing else.
 */
export function connectionsMax(limits = openFilesText()): number {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
  if (soft === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(LEAST, Math.floor(Number(soft) * (1 - OTHERS_PART)) - OTHERS);
}

/** Limits of this process, which Linux shows in a file. */
function openFilesText(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return "";
  }
}

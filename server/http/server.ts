import { CLIENT_WAIT_S, Connection, type Serve } from "./connection.ts";
import { connectionsMax } from "./descriptors.ts";

const FULL_BODY = JSON.stringify({
  error: {
    message: "the server has as many connections as it can hold",
    type: "overloaded_error",
    param: null,
    code: "server_overloaded",
  },
});
/** What a connection is told for which there is no room, before anything is read of it. */
const FULL = `HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: ${FULL_BODY.length}\r\n\r\n${FULL_BODY}`;

/** Listens, and keeps the connections of clients. */
export class HttpServer {
  /** What answers requests from now on. */
  serve: Serve;
  readonly #listener: Bun.TCPSocketListener<Connection | null>;
  readonly #connections = new Set<Connection>();
  readonly #stopped = Promise.withResolvers<void>();
  #isStopping = false;

  /** Throws what Bun.listen throws. */
  constructor(
    hostname: string,
    port: number,
    serve: Serve,
    { clientWaitS = CLIENT_WAIT_S, connections = connectionsMax() } = {},
  ) {
    this.serve = serve;
    this.#listener = Bun.listen<Connection | null>({
      hostname,
      port,
      socket: {
        open: (socket) => {
          socket.data = null;
          if (this.#connections.size >= connections) {
            socket.end(FULL);
            return;
          }
          socket.data = new Connection(socket, (request) => this.serve(request), clientWaitS);
          this.#connections.add(socket.data);
        },
        data: ({ data }, bytes) => data?.receive(bytes),
        drain: ({ data }) => data?.drained(),
        timeout: ({ data }) => data?.timedOut(),
        // What ends a connection is told by `close` too.
        error: () => {},
        close: ({ data }) => this.#closed(data),
      },
    });
  }

  get port(): number {
    return this.#listener.port;
  }

  get origin(): string {
    const { hostname, port } = this.#listener;
    return `http://${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  }

  /** Takes no more connections and requests; resolves when the answers that are being given are given. */
  stop(): Promise<void> {
    this.#listener.stop();
    this.#isStopping = true;
    for (const connection of this.#connections) connection.end();
    if (this.#connections.size === 0) this.#stopped.resolve();
    return this.#stopped.promise;
  }

  /** Ends every connection now. */
  async kill(): Promise<void> {
    const stopped = this.stop();
    this.#listener.stop(true);
    await stopped;
  }

  #closed(connection: Connection | null): void {
    if (connection === null) return;
    connection.closed();
    this.#connections.delete(connection);
    if (this.#isStopping && this.#connections.size === 0) this.#stopped.resolve();
  }
}

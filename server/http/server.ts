import { CLIENT_WAIT_S, Connection, type Serve } from "./connection.ts";

/** Listens, and keeps the connections of clients. */
export class HttpServer {
  /** What answers requests from now on. */
  serve: Serve;
  readonly #listener: Bun.TCPSocketListener<Connection>;
  readonly #connections = new Set<Connection>();
  readonly #stopped = Promise.withResolvers<void>();
  #isStopping = false;

  /** Throws what Bun.listen throws. */
  constructor(hostname: string, port: number, serve: Serve, clientWaitS = CLIENT_WAIT_S) {
    this.serve = serve;
    this.#listener = Bun.listen<Connection>({
      hostname,
      port,
      socket: {
        open: (socket) => {
          socket.data = new Connection(socket, (request) => this.serve(request), clientWaitS);
          this.#connections.add(socket.data);
        },
        data: ({ data }, bytes) => data.receive(bytes),
        drain: ({ data }) => data.drained(),
        timeout: ({ data }) => data.timedOut(),
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

  #closed(connection: Connection): void {
    connection.closed();
    this.#connections.delete(connection);
    if (this.#isStopping && this.#connections.size === 0) this.#stopped.resolve();
  }
}

/**
 * How much of what a client was sent it has not read. Its system takes in what its program leaves, and a write does not tell; but it
 * tells how much more it would take (the window of TCP), and that becomes smaller by what waits there to be read.
 */

import { IPPROTO_TCP, Sockets } from "./sockets.ts";

/** From Linux's headers: the option, and the place of `tcpi_snd_wnd` in what it gives, from Linux 5.4 on. */
const TCP_INFO = 11;
const WINDOW_AT = 228 / 4;

/** Looking at all descriptors takes a microsecond for each: this part of the time at most. */
const SEARCH_SHARE = 0.02;
/** In place of a descriptor: clients of several machines have the port. */
const AMBIGUOUS = -1;

export class Windows {
  readonly #sockets = Sockets.open();
  readonly #info = new Int32Array(new ArrayBuffer(4 * (WINDOW_AT + 1)));
  /** Connections by the client's port, as of the last search. */
  #byPort = new Map<number, { readonly fd: number; windowBytes: number }>();
  #nextSearchMs = 0;

  /** Bytes that the system of the client at this port would still take; null: it is not known, or not yet. */
  of(clientPort: number): number | null {
    const sockets = this.#sockets;
    if (sockets === null) return null;
    const known = this.#byPort.get(clientPort);
    const windowBytes = known === undefined ? null : this.#read(sockets, known.fd);
    if (known !== undefined && windowBytes !== null && windowBytes >= known.windowBytes) {
      known.windowBytes = windowBytes;
      return windowBytes;
    }
    // Smaller, or gone: the descriptor may have become another connection's.
    if (known === undefined || (known.fd !== AMBIGUOUS && sockets.peerPort(known.fd) !== clientPort))
      this.#search(sockets);
    const found = this.#byPort.get(clientPort);
    return found === undefined ? null : this.#read(sockets, found.fd);
  }

  #read(sockets: Sockets, fd: number): number | null {
    if (fd === AMBIGUOUS || !sockets.getOption(fd, IPPROTO_TCP, TCP_INFO, this.#info)) return null;
    return this.#info[WINDOW_AT]!;
  }

  #search(sockets: Sockets): void {
    const startMs = performance.now();
    if (startMs < this.#nextSearchMs) return;
    this.#byPort = new Map();
    for (const fd of sockets.descriptors()) {
      const port = sockets.peerPort(fd);
      if (port !== null && port !== 0)
        this.#byPort.set(port, { fd: this.#byPort.has(port) ? AMBIGUOUS : fd, windowBytes: 0 });
    }
    const endMs = performance.now();
    this.#nextSearchMs = endMs + (endMs - startMs) / SEARCH_SHARE;
  }
}

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
/** Clients of several machines have the port. */
const AMBIGUOUS = -1;

export class Windows {
  readonly #sockets = Sockets.open();
  readonly #info = new Int32Array(new ArrayBuffer(4 * (WINDOW_AT + 1)));
  /** Descriptors of connections by the client's port, as of the last search. */
  #byPort = new Map<number, number>();
  #nextSearchMs = 0;

  /** Bytes that the system of the client at this port would still take; null: it is not known, or not yet. */
  of(clientPort: number): number | null {
    const sockets = this.#sockets;
    if (sockets === null) return null;
    const known = this.#byPort.get(clientPort);
    // A descriptor may have become another connection's.
    const isThere = known !== undefined && (known === AMBIGUOUS || sockets.peerPort(known) === clientPort);
    if (!isThere) this.#search(sockets);
    const fd = this.#byPort.get(clientPort) ?? AMBIGUOUS;
    if (fd === AMBIGUOUS || !sockets.getOption(fd, IPPROTO_TCP, TCP_INFO, this.#info)) return null;
    return this.#info[WINDOW_AT]!;
  }

  #search(sockets: Sockets): void {
    const startMs = performance.now();
    if (startMs < this.#nextSearchMs) return;
    this.#byPort = new Map();
    for (const fd of sockets.descriptors()) {
      const port = sockets.peerPort(fd);
      if (port !== null && port !== 0) this.#byPort.set(port, this.#byPort.has(port) ? AMBIGUOUS : fd);
    }
    const endMs = performance.now();
    this.#nextSearchMs = endMs + (endMs - startMs) / SEARCH_SHARE;
  }
}

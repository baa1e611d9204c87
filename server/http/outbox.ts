/** Outgoing bytes of a connection: bytes that the socket does not accept at once wait here, in order. */
export class Outbox {
  readonly #socket: Bun.Socket<unknown>;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #isClosed = false;
  readonly #onWaiting: () => void;
  readonly #onEmpty: (() => void)[] = [];

  /** Calls `onWaiting` when bytes begin to wait. */
  constructor(socket: Bun.Socket<unknown>, onWaiting: () => void) {
    this.#socket = socket;
    this.#onWaiting = onWaiting;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * Sends bytes [from, to), which belong to the caller again afterwards. Returns false if some of them wait.
   */
  send(bytes: Uint8Array, from = 0, to = bytes.length): boolean {
    if (this.#isClosed) return true;
    const taken = this.#waitingBytes > 0 ? 0 : Math.max(0, this.#socket.write(bytes, from, to - from));
    if (from + taken === to) return true;
    this.#waiting.push(Buffer.from(bytes.subarray(from + taken, to)));
    this.#waitingBytes += to - from - taken;
    if (this.#waiting.length === 1) this.#onWaiting();
    return false;
  }

  /** Handles the socket's drain event: it accepts bytes again. */
  flush(): void {
    while (this.#waiting.length > 0) {
      const [bytes] = this.#waiting;
      const taken = Math.max(0, this.#socket.write(bytes!));
      this.#waitingBytes -= taken;
      if (taken < bytes!.length) {
        this.#waiting[0] = bytes!.subarray(taken);
        return;
      }
      this.#waiting.shift();
    }
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /** Drops waiting bytes and sends no more. */
  close(): void {
    this.#isClosed = true;
    this.#waiting = [];
    this.#waitingBytes = 0;
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /** Calls `tell` once the socket has accepted everything, or is closed. */
  whenEmpty(tell: () => void): void {
    if (this.#waitingBytes === 0) tell();
    else this.#onEmpty.push(tell);
  }
}

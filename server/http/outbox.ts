/** Outgoing bytes of a connection: bytes that the socket does not accept at once wait here, in order. */
export class Outbox {
  readonly #socket: Bun.Socket<unknown>;
  #waiting: Uint8Array[] = [];
  #waitingBytes = 0;
  #isClosed = false;
  readonly #onWaiting: () => void;
  readonly #onLost: () => void;
  readonly #onEmpty: (() => void)[] = [];

  /** Calls `onWaiting` when bytes begin to wait, and `onLost` when the client can receive no more. */
  constructor(socket: Bun.Socket<unknown>, onWaiting: () => void, onLost: () => void) {
    this.#socket = socket;
    this.#onWaiting = onWaiting;
    this.#onLost = onLost;
  }

  get waitingBytes(): number {
    return this.#waitingBytes;
  }

  /**
   * Sends bytes [from, to), which belong to the caller again afterwards. Returns false if some of them wait.
   */
  send(bytes: Uint8Array, from = 0, to = bytes.length): boolean {
    if (this.#isClosed) return true;
    const taken = this.#waitingBytes > 0 ? 0 : this.#write(bytes, from, to);
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
      const taken = this.#write(bytes!, 0, bytes!.length);
      this.#waitingBytes -= taken;
      if (taken < bytes!.length) {
        this.#waiting[0] = bytes!.subarray(taken);
        return;
      }
      this.#waiting.shift();
    }
    for (const tell of this.#onEmpty.splice(0)) tell();
  }

  /**
   * Returns how many of the bytes the socket accepts. Bun reports a paused socket's loss by a failed write
   * alone, without a close event.
   */
  #write(bytes: Uint8Array, from: number, to: number): number {
    const taken = this.#socket.write(bytes, from, to - from);
    if (taken >= 0) return taken;
    this.#onLost();
    return 0;
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

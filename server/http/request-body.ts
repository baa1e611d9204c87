/** Bytes of a request's body that may wait for the route that reads it. */
const WAITING_BYTES_MAX = 256 * 1024;

/** Body of a request, as it arrives. */
export class RequestBody {
  readonly #onRead: () => void;
  #pieces: Uint8Array<ArrayBuffer>[] = [];
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  #isComplete = false;
  #isUnwanted = false;
  #failure: Error | null = null;

  /** Calls `onRead` whenever the reader asks for more. */
  constructor(onRead: () => void) {
    this.#onRead = onRead;
  }

  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** True if WAITING_BYTES_MAX bytes wait for the route. */
  get isFull(): boolean {
    return (
      this.#controller !== null && !this.#isComplete && this.#controller.desiredSize! <= -WAITING_BYTES_MAX
    );
  }

  push(piece: Uint8Array<ArrayBuffer>): void {
    if (this.#isUnwanted) return;
    if (this.#controller === null) this.#pieces.push(piece);
    else this.#controller.enqueue(piece);
  }

  end(): void {
    this.#isComplete = true;
    if (!this.#isUnwanted) this.#controller?.close();
  }

  /** Fails the body: the connection sends no more of it. */
  fail(error: Error): void {
    if (this.#isComplete) return;
    this.#failure = error;
    if (!this.#isUnwanted) this.#controller?.error(error);
  }

  /** Drops received and future bytes. */
  drop(): void {
    this.#isUnwanted = true;
    this.#pieces = [];
  }

  /** Body in the form that `Request` accepts: the bytes if all have arrived, null if there are none. */
  take(): Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array> | null {
    const pieces = this.#pieces;
    this.#pieces = [];
    if (this.#isComplete) return pieces.length === 0 ? null : joined(pieces);
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
          for (const piece of pieces) controller.enqueue(piece);
          if (this.#failure !== null) controller.error(this.#failure);
        },
        pull: () => this.#onRead(),
        cancel: () => this.drop(),
      },
      { highWaterMark: 0, size: (piece) => piece!.byteLength },
    );
  }
}

function joined(pieces: readonly Uint8Array<ArrayBuffer>[]): Uint8Array<ArrayBuffer> {
  return pieces.length === 1 ? pieces[0]! : new Uint8Array(Buffer.concat(pieces));
}

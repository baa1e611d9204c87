/** Milliseconds of work per piece, after which the engine reads its messages. */
const PIECE_MS = 1;
/** Rest after a piece, as a multiple of its duration: engines of other models may need the same cores. */
const RESTS = 4;

/** Background work of an idle engine, in pieces so short that a message hardly waits. */
export class PauseWork {
  #work: Iterator<void> | null;
  readonly #now: () => number;
  #nextMs = 0;

  constructor(work: Iterator<void> | null, now: () => number = () => performance.now()) {
    this.#work = work;
    this.#now = now;
  }

  /** Does a piece if one is due. Returns milliseconds until the next one; infinite if no work is left. */
  run(): number {
    if (this.#work === null) return Number.POSITIVE_INFINITY;
    const beganMs = this.#now();
    if (beganMs < this.#nextMs) return this.#nextMs - beganMs;
    let endMs = beganMs;
    while (endMs - beganMs < PIECE_MS) {
      if (this.#work.next().done === true) {
        this.#work = null;
        return Number.POSITIVE_INFINITY;
      }
      endMs = this.#now();
    }
    this.#nextMs = endMs + RESTS * (endMs - beganMs);
    return this.#nextMs - endMs;
  }
}

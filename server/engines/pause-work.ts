/** Milliseconds of work in a pause, after which messages are read again. */
const PIECE_MS = 1;
/** Rest after a piece, in times of its length: engines of other models may compute on the same cores. */
const RESTS = 4;

/** Work that an engine does in pieces while it has no steps. Each piece delays a message by little. */
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

/** How long the thread that serves HTTP was away from its clients. */

const CHECK_MS = 10;
/** Half of the time that a gap is told for. */
const WINDOW_MS = 30_000;

/** Watches the thread that it is made on: nothing else runs there while one thing takes long. */
export class ThreadGap {
  readonly #timer: ReturnType<typeof setInterval>;
  #dueMs: number;
  #windowEndMs: number;
  #worstMs = 0;
  #worstBeforeMs = 0;

  constructor() {
    const nowMs = performance.now();
    this.#dueMs = nowMs + CHECK_MS;
    this.#windowEndMs = nowMs + WINDOW_MS;
    this.#timer = setInterval(() => this.#check(), CHECK_MS);
    this.#timer.unref();
  }

  /** The longest of the last 30 to 60 seconds, in milliseconds. */
  get worstMs(): number {
    return Math.max(this.#worstMs, this.#worstBeforeMs);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const nowMs = performance.now();
    this.#worstMs = Math.max(this.#worstMs, nowMs - this.#dueMs);
    this.#dueMs = nowMs + CHECK_MS;
    if (nowMs < this.#windowEndMs) return;
    this.#worstBeforeMs = this.#worstMs;
    this.#worstMs = 0;
    this.#windowEndMs = nowMs + WINDOW_MS;
  }
}

/**
 * A sum over about the last `windowMs`: the additions of the current stretch of that length, and of the
 * stretch before the share that the window still reaches, as if evenly spread.
 */
export class WindowSum {
  readonly #windowMs: number;
  #sinceMs = 0;
  #current = 0;
  #previous = 0;

  constructor(windowMs: number) {
    this.#windowMs = windowMs;
  }

  add(value: number, nowMs: number): void {
    this.#roll(nowMs);
    this.#current += value;
  }

  at(nowMs: number): number {
    this.#roll(nowMs);
    return this.#current + this.#previous * (1 - (nowMs - this.#sinceMs) / this.#windowMs);
  }

  #roll(nowMs: number): void {
    const elapsed = nowMs - this.#sinceMs;
    if (elapsed < this.#windowMs) return;
    this.#previous = elapsed < 2 * this.#windowMs ? this.#current : 0;
    this.#current = 0;
    this.#sinceMs = nowMs - (elapsed % this.#windowMs);
  }
}

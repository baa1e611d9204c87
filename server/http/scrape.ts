/** How long a text of all metrics is given out before another is made. */
const KEPT_MS = 1000;

/** The text of all metrics: made once a second at most and once at a time, however many ask for it. */
export class Scrape {
  readonly #make: () => Promise<string>;
  readonly #nowMs: () => number;
  #text: Promise<string> | null = null;
  #madeMs = Number.NEGATIVE_INFINITY;

  constructor(make: () => Promise<string>, nowMs: () => number = () => performance.now()) {
    this.#make = make;
    this.#nowMs = nowMs;
  }

  text(): Promise<string> {
    if (this.#text === null || this.#nowMs() - this.#madeMs >= KEPT_MS) {
      this.#madeMs = Number.POSITIVE_INFINITY; // until it is made, all wait for it
      this.#text = this.#make().finally(() => {
        this.#madeMs = this.#nowMs();
      });
    }
    return this.#text;
  }
}

/** End of the first class of times in milliseconds; each later class ends at twice the time. */
const FIRST_MS = 64;
/** Number of classes: the last one ends after 35 minutes. */
const CLASSES = 16;
/** Number of counted times past which all counts are halved, so that recent times weigh more. */
const COUNTED_MAX = 64;

/** Time after which a session counts as one that does not return. */
export const RETURN_MAX_MS = FIRST_MS * 2 ** (CLASSES - 1);

/**
 * Counts of the times between an answer and the next prompt of its session, in classes of doubling length.
 * Also counts answers that no prompt followed.
 */
export class ReturnTimes {
  readonly #counts = new Float64Array(CLASSES);
  #never = 0;

  /** Adds a time; more than `RETURN_MAX_MS` counts as never. */
  add(timeMs: number): void {
    let place = 0;
    for (let endMs = FIRST_MS; endMs < timeMs; endMs *= 2) place += 1;
    if (place < CLASSES) this.#counts[place]! += 1;
    else this.#never += 1;
    if (this.#counts.reduce((sum, count) => sum + count, this.#never) <= COUNTED_MAX) return;
    for (let i = 0; i < CLASSES; i++) this.#counts[i]! /= 2;
    this.#never /= 2;
  }

  /** Adds `weight` times these counts to others. */
  addTo(sum: ReturnTimes, weight: number): void {
    for (let i = 0; i < CLASSES; i++) sum.#counts[i]! += weight * this.#counts[i]!;
    sum.#never += weight * this.#never;
  }

  /** Prior counts of one answer: a return with probability `chance`, evenly within classes [first, end). */
  static guess(chance: number, first: number, end: number): ReturnTimes {
    const guess = new ReturnTimes();
    for (let i = first; i < end; i++) guess.#counts[i] = chance / (end - first);
    guess.#never = 1 - chance;
    return guess;
  }

  /**
   * Returns how long to keep pages that save `savedMs` if the session returns, at a price of `rent` milliseconds per
   * kept millisecond. Times count from the answer, `elapsedMs` ago. Chooses the end with the largest expected gain.
   */
  worth(elapsedMs: number, savedMs: number, rent: number): KeepingTime {
    let total = this.#never;
    const left = this.#counts.map((count, i) => {
      const [startMs, endMs] = [i === 0 ? 0 : FIRST_MS * 2 ** (i - 1), FIRST_MS * 2 ** i];
      const part = Math.max(0, endMs - Math.max(startMs, elapsedMs)) / (endMs - startMs);
      total += count * part;
      return count * part;
    });
    let best: KeepingTime = { untilMs: elapsedMs, gainMs: 0, keptMs: 0 };
    let [gainMs, keptMs, staying] = [0, 0, 1];
    let fromMs = elapsedMs;
    for (let i = 0; i < CLASSES && total > 0; i++) {
      const endMs = FIRST_MS * 2 ** i;
      if (endMs <= elapsedMs) continue;
      const chance = left[i]! / total;
      gainMs += chance * savedMs;
      // A return within the class comes in its middle on average.
      keptMs += (endMs - fromMs) * (staying - chance / 2);
      staying -= chance;
      fromMs = endMs;
      const leftMs = gainMs - rent * keptMs;
      if (leftMs > best.gainMs) best = { untilMs: endMs, gainMs: leftMs, keptMs };
    }
    return best;
  }
}

/** Time for which pages are kept, from the answer on. */
export interface KeepingTime {
  readonly untilMs: number;
  /** Milliseconds that this saves on average; 0: keeping does not pay. */
  readonly gainMs: number;
  /** Milliseconds for which it is kept on average. */
  readonly keptMs: number;
}

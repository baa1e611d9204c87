/** Entries of a kind, and how many of them were read. */
interface Counts {
  made: number;
  read: number;
}

/**
 * Learns which share of the entries (pages, checkpoints) of a kind is read, and of those that were read, read again.
 * Later entries weigh more: past `countedMax` the counts of a kind are halved.
 */
export class ReadShares {
  readonly #expected: number;
  readonly #countedMax: number;
  readonly #counts = new Map<string, Counts>();

  /** The prior of each share is a half, with the weight of `2 × expected` entries. */
  constructor(expected: number, countedMax: number) {
    this.#expected = expected;
    this.#countedMax = countedMax;
  }

  /** Records that `count` entries were made (`before` null), or read after they had been read `before` times. */
  used(kind: string, before: number | null, count = 1): void {
    if (before !== null) this.#countsOf(kind, before).read += count;
    const counts = this.#countsOf(kind, before === null ? 0 : before + 1);
    counts.made += count;
    if (counts.made <= this.#countedMax) return;
    counts.made /= 2;
    counts.read /= 2;
  }

  /** Estimated probability that an entry of a kind, read `reads` times so far, is read again. */
  shareOf(kind: string, reads: number): number {
    const { made, read } = this.#countsOf(kind, reads);
    return (this.#expected + read) / (2 * this.#expected + made);
  }

  /** Counts of a kind: separate ones for entries that were never read, and for those that were. */
  #countsOf(kind: string, reads: number): Counts {
    const name = reads === 0 ? kind : `${kind}, read`;
    let counts = this.#counts.get(name);
    if (counts === undefined) {
      counts = { made: 0, read: 0 };
      this.#counts.set(name, counts);
    }
    return counts;
  }
}

/** Things of a kind, and how many of them were read. */
interface Counts {
  made: number;
  read: number;
}

/**
 * Learns which share of the things of a kind is read, and of those that were read, read again. Later things
 * weigh more: past `countedMax` the counts of a kind are halved.
 */
export class ReadShares {
  readonly #expected: number;
  readonly #countedMax: number;
  readonly #counts = new Map<string, Counts>();

  /** Before anything is counted a share is a half, and weighs as much as `2 × expected` things. */
  constructor(expected: number, countedMax: number) {
    this.#expected = expected;
    this.#countedMax = countedMax;
  }

  /** Records that `count` things were made (null) or read, which were read `before` times before. */
  used(kind: string, before: number | null, count = 1): void {
    if (before !== null) this.#countsOf(kind, before).read += count;
    const counts = this.#countsOf(kind, before === null ? 0 : before + 1);
    counts.made += count;
    if (counts.made <= this.#countedMax) return;
    counts.made /= 2;
    counts.read /= 2;
  }

  /** The share of things of a kind that are read, once they were read `reads` times. */
  shareOf(kind: string, reads: number): number {
    const { made, read } = this.#countsOf(kind, reads);
    return (this.#expected + read) / (2 * this.#expected + made);
  }

  /** Counts of a kind, apart for those that were read before. */
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

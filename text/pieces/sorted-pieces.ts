/**
 * Sorted spellings of a vocabulary, to find the pieces that begin at a position of a word without slicing it.
 */
import type { TokenId } from "../../base/token.ts";

export class SortedPieces {
  /** In the order of UTF-16 units, so that those with a common prefix are neighbours. */
  readonly #spellings: readonly string[];
  /** Token of each spelling, in the same order. */
  readonly #tokens: Int32Array;

  /** `spellings` by token; of equal ones the last counts, and empty ones do not. */
  constructor(spellings: readonly string[]) {
    const tokens = new Map(spellings.map((spelling, token) => [spelling, token]));
    tokens.delete("");
    this.#spellings = [...tokens.keys()].sort();
    this.#tokens = Int32Array.from(this.#spellings, (spelling) => tokens.get(spelling)!);
  }

  /** Calls back for each piece in `word` at `start`, from the shortest on, with the index behind it. */
  eachAt(word: string, start: number, visit: (end: number, token: TokenId) => void): void {
    let low = 0;
    let high = this.#spellings.length;
    for (let at = start; at < word.length; at++) {
      const unit = word.charCodeAt(at);
      low = this.#firstFrom(low, high, at - start, unit);
      high = this.#firstFrom(low, high, at - start, unit + 1);
      if (low === high) return;
      if (this.#spellings[low]!.length === at - start + 1) visit(at + 1, this.#tokens[low]!);
    }
  }

  /** First spelling in [low, high) whose unit at `depth` is at least `unit`; else `high`. */
  #firstFrom(low: number, high: number, depth: number, unit: number): number {
    let [from, to] = [low, high];
    while (from < to) {
      const middle = (from + to) >>> 1;
      // A spelling that ends here has no unit, and comes before the others.
      if (this.#spellings[middle]!.charCodeAt(depth) >= unit) to = middle;
      else from = middle + 1;
    }
    return from;
  }
}

/**
 * Finds stop strings in text that arrives in pieces, and holds back only possible beginnings of one.
 *
 * The match that completes first wins; of several at the same position the longest does. So the result does
 * not depend on how the text was split. One Knuth-Morris-Pratt automaton per stop string: each character
 * costs O(stop strings) amortised.
 */
export class StopMatcher {
  readonly #automata: readonly Automaton[];
  readonly #includeMatch: boolean;
  #held = "";

  constructor(stopStrings: readonly string[], options: { readonly includeMatch: boolean }) {
    // Well-formed, so that neither a match nor the held-back text can begin or end inside a scalar.
    this.#automata = stopStrings.filter((s) => s.length > 0).map((s) => automatonOf(s.toWellFormed()));
    this.#includeMatch = options.includeMatch;
  }

  /** UTF-16 units that are held back. */
  get heldUnits(): number {
    return this.#held.length;
  }

  /**
   * Returns the text that is certain now. `matched` is the stop string found; nothing may be pushed after it.
   */
  push(text: string): { readonly text: string; readonly matched: string | null } {
    if (this.#automata.length === 0) return { text, matched: null };
    const all = this.#held + text;
    for (let i = this.#held.length; i < all.length; i++) {
      const matched = this.#advance(all.charCodeAt(i));
      if (matched === null) continue;
      this.#held = "";
      const end = i + 1;
      return { text: all.slice(0, this.#includeMatch ? end : end - matched.length), matched };
    }
    const certain = all.length - Math.max(...this.#automata.map((a) => a.state));
    this.#held = all.slice(certain);
    return { text: all.slice(0, certain), matched: null };
  }

  /** Ends the text: returns the text held back, which is no stop string after all. Another text may begin. */
  end(): string {
    const rest = this.#held;
    this.#held = "";
    for (const automaton of this.#automata) automaton.state = 0;
    return rest;
  }

  #advance(unit: number): string | null {
    let longest: string | null = null;
    for (const automaton of this.#automata) {
      const { pattern, failure } = automaton;
      let state = automaton.state;
      while (state > 0 && pattern.charCodeAt(state) !== unit) state = failure[state - 1]!;
      if (pattern.charCodeAt(state) === unit) state++;
      automaton.state = state;
      if (state === pattern.length && pattern.length > (longest?.length ?? 0)) longest = pattern;
    }
    return longest;
  }
}

interface Automaton {
  readonly pattern: string;
  /** failure[i]: length of the longest proper prefix of the pattern that ends at i. */
  readonly failure: readonly number[];
  /** Units of the pattern that the text read so far ends with. */
  state: number;
}

function automatonOf(pattern: string): Automaton {
  const failure = [0];
  for (let i = 1, state = 0; i < pattern.length; i++) {
    while (state > 0 && pattern.charCodeAt(i) !== pattern.charCodeAt(state)) state = failure[state - 1]!;
    if (pattern.charCodeAt(i) === pattern.charCodeAt(state)) state++;
    failure.push(state);
  }
  return { pattern, failure, state: 0 };
}

/** Assumed length of the first answers. */
const FIRST_GUESS = 128;
/** Number of answers after which a prefix has an estimate of its own. */
const SAMPLES = 4;
/** Weight of the last answer in a mean of many; the mean of fewer counts all alike. */
const WEIGHT = 1 / 16;
/** Prefixes with an estimate at most; the oldest is dropped first. */
const PREFIXES = 4096;

interface Mean {
  tokens: number;
  samples: number;
}

/**
 * Expected lengths of answers: by the first page of the prompt, which usually identifies the application, else over
 * all answers.
 */
export class OutputEstimate {
  readonly #byPrefix = new Map<number, Mean>();
  /** The first guess weighs as much as `SAMPLES` answers. */
  readonly #all: Mean = { tokens: FIRST_GUESS, samples: SAMPLES };

  /**
   * Expected tokens of the answer to a prompt, 1 … tokensMax. `prefix`: the hash of its first page, if any.
   */
  expect(prefix: number | undefined, tokensMax: number): number {
    const own = prefix === undefined ? undefined : this.#byPrefix.get(prefix);
    const mean = own !== undefined && own.samples >= SAMPLES ? own : this.#all;
    return Math.max(1, Math.min(tokensMax, Math.round(mean.tokens)));
  }

  /** Records an answer of `tokens` tokens. */
  ended(prefix: number | undefined, tokens: number): void {
    learn(this.#all, tokens);
    if (prefix === undefined) return;
    let own = this.#byPrefix.get(prefix);
    if (own === undefined) {
      own = { tokens, samples: 0 };
      if (this.#byPrefix.size === PREFIXES) this.#byPrefix.delete(this.#byPrefix.keys().next().value!);
      this.#byPrefix.set(prefix, own);
    }
    learn(own, tokens);
  }
}

function learn(mean: Mean, tokens: number): void {
  mean.samples += 1;
  mean.tokens += (tokens - mean.tokens) * Math.max(WEIGHT, 1 / mean.samples);
}

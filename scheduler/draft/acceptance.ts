/** Weight of the prior, in verified tokens. */
const PRIOR = 4;
/** Decay of a verified token's weight with each later one of its kind: the last 50 decide. */
const FORGET = 0.98;

/** Acceptance rates of draft tokens by kind (`Draft.kinds`); the latest tokens count most. */
export class Acceptance {
  readonly #prior: (kind: number) => number;
  readonly #accepted: Float64Array;
  readonly #verified: Float64Array;

  /** `prior`: the acceptance rate of each kind, before tokens of it are verified. */
  constructor(kinds: number, prior: (kind: number) => number) {
    this.#prior = prior;
    this.#accepted = new Float64Array(kinds);
    this.#verified = new Float64Array(kinds);
  }

  /** Probability that a token of a kind is accepted, given that all draft tokens before it are. */
  rateOf(kind: number): number {
    return (this.#accepted[kind]! + PRIOR * this.#prior(kind)) / (this.#verified[kind]! + PRIOR);
  }

  learn(kind: number, isAccepted: boolean): void {
    this.#accepted[kind] = FORGET * this.#accepted[kind]! + (isAccepted ? 1 : 0);
    this.#verified[kind] = FORGET * this.#verified[kind]! + 1;
  }
}

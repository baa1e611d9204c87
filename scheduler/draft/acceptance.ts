/** Weight of the prior, in checked tokens. */
const PRIOR = 4;
/** Decay of a checked token's weight with each later one of its kind: the last 50 decide. */
const FORGET = 0.98;

/** Share of drafted tokens that were right, by kind; the latest count most. */
export class Acceptance {
  readonly #prior: (kind: number) => number;
  readonly #right: Float64Array;
  readonly #checked: Float64Array;

  /** `prior`: the share of each kind while few of it were checked. */
  constructor(kinds: number, prior: (kind: number) => number) {
    this.#prior = prior;
    this.#right = new Float64Array(kinds);
    this.#checked = new Float64Array(kinds);
  }

  /** Chance that a token of a kind is right, where all drafted before it are. */
  chanceOf(kind: number): number {
    return (this.#right[kind]! + PRIOR * this.#prior(kind)) / (this.#checked[kind]! + PRIOR);
  }

  learn(kind: number, isRight: boolean): void {
    this.#right[kind] = FORGET * this.#right[kind]! + (isRight ? 1 : 0);
    this.#checked[kind] = FORGET * this.#checked[kind]! + 1;
  }
}

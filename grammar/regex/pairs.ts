import type { Regex } from "./shape.ts";

/** Two expressions reached by the same bytes. */
export type Pair = readonly [one: Regex, other: Regex];

/** Pairs visited by a search of two expressions, each once. Open pairs are still to be expanded. */
export class Pairs {
  /** Visited second expressions by their first. */
  readonly #others = new Map<Regex, Set<Regex>>();
  readonly #open: Pair[] = [];

  constructor(...first: Pair) {
    this.add(...first);
  }

  /** Opens the pair, unless it has been visited. */
  add(one: Regex, other: Regex): void {
    let others = this.#others.get(one);
    if (others === undefined) {
      others = new Set();
      this.#others.set(one, others);
    }
    if (others.has(other)) return;
    others.add(other);
    this.#open.push([one, other]);
  }

  /** Removes and returns the pair that was opened last; undefined if none is open. */
  take(): Pair | undefined {
    return this.#open.pop();
  }

  /** Expressions visited together with `one`. */
  with(one: Regex): Iterable<Regex> {
    return this.#others.get(one) ?? [];
  }
}

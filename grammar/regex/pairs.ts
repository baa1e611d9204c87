import type { Regex } from "./shape.ts";

/** Two expressions that are reached together, by the same bytes. */
export type Pair = readonly [one: Regex, other: Regex];

/** Pairs that a search of two expressions has come to, each once: those that it has still to look at are open. */
export class Pairs {
  /** By the first of them. */
  readonly #others = new Map<Regex, Set<Regex>>();
  readonly #open: Pair[] = [];

  constructor(...first: Pair) {
    this.add(...first);
  }

  /** Opens the pair, unless it has been met. */
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

  /** The pair that was opened last, which is then open no more; undefined: there is none. */
  take(): Pair | undefined {
    return this.#open.pop();
  }

  /** All that were met with one. */
  with(one: Regex): Iterable<Regex> {
    return this.#others.get(one) ?? [];
  }
}

import { assert } from "../core.ts";
import { PrefixPending } from "./prefix-pending.ts";
import { insertByArrival, PriorityGroups } from "./priority-groups.ts";
import type { Sequence } from "./sequence.ts";

/**
 * Everybody who waits and is not paused, in one of three places:
 *
 *   returning       preempted; before all others, in order of arrival, once their back-off is over
 *   groups          everybody else, in the order of priority-groups.ts
 *   prefixPending   out of the order until the prefix they share with a running sequence is there
 */
export class WaitQueue {
  readonly #groups: PriorityGroups;
  readonly #pending = new PrefixPending();
  readonly #returning: Sequence[] = [];

  constructor(groupCount: number, ageingMs: number, lookUp: (sequence: Sequence) => number) {
    this.#groups = new PriorityGroups(groupCount, ageingMs, lookUp);
  }

  get size(): number {
    return this.#groups.size + this.#pending.size + this.#returning.length;
  }

  add(sequence: Sequence, nowMs: number): void {
    sequence.state = "waiting";
    if (sequence.wasStarted) insertByArrival(this.#returning, sequence);
    else this.#groups.add(sequence, nowMs);
  }

  remove(sequence: Sequence): void {
    if (sequence.state === "prefixPending") this.#pending.remove(sequence);
    else {
      const index = this.#returning.indexOf(sequence);
      if (index >= 0) this.#returning.splice(index, 1);
      else assert(this.#groups.remove(sequence), "the sequence waits");
    }
    sequence.state = "waiting";
  }

  /** Who is next. `step` is the number of the step being planned; Infinity disregards back-off. */
  peek(nowMs: number, step: number): Sequence | null {
    const returning = this.#returning.find((sequence) => sequence.stepsUntil <= step);
    return returning ?? this.#groups.peek(nowMs);
  }

  /** Takes out the one that `peek` returned. */
  take(sequence: Sequence): void {
    const index = this.#returning.indexOf(sequence);
    if (index >= 0) this.#returning.splice(index, 1);
    else this.#groups.take(sequence);
  }

  /** Sets a waiting sequence aside until `owner` has published `tokens` tokens. */
  park(sequence: Sequence, owner: Sequence, tokens: number): void {
    this.remove(sequence);
    sequence.state = "prefixPending";
    this.#pending.park(sequence, owner, tokens);
  }

  /** The owner has published `tokens` tokens (Infinity: will publish no more): puts those who waited for them
   *  back. */
  wake(owner: Sequence, tokens: number, nowMs: number): void {
    for (const sequence of this.#pending.wake(owner, tokens)) this.add(sequence, nowMs);
  }

  /** Who waits for how many tokens of whom. For checks. */
  prefixWaits(): ReturnType<PrefixPending["waits"]> {
    return this.#pending.waits();
  }
}

import { assert } from "../core.ts";
import type { Sequence } from "./sequence.ts";

/**
 * The order of the waiting: Preble's prioritised request scheduling (arXiv:2407.00023 §3.3). Sequences are in
 * P groups by the share of their prompt that is cached, group g = min(P - 1, floor(P × cached / length)), and
 * group g gets g + 1 of every P(P + 1)/2 picks: who is mostly cached goes first, and nobody starves.
 *
 * Ours where the paper is silent or its code differs:
 * - The picks are a deficit round robin, from the highest group down, with the quantum g + 1: a group that
 *   stays non-empty is served within P(P + 1)/2 picks. A group that runs empty forfeits the rest of its turn.
 * - Inside a group, first come first served. P = 1 is plain FCFS.
 * - The cached share is looked up again when a sequence's turn comes (the code does it on arrival only); if
 *   it has changed group, it moves and the turn goes on.
 * - Whoever has waited longer than `ageingMs` belongs to the top group, where it is among the oldest.
 */
export class PriorityGroups {
  readonly #groups: Sequence[][];
  readonly #ageingMs: number;
  readonly #lookUp: (sequence: Sequence) => number;
  /** The group whose turn it is, and how many picks are left of its turn. */
  #turn: number;
  #credit: number;
  #size = 0;

  /** `lookUp` tells how many of a sequence's known tokens are cached now. */
  constructor(groupCount: number, ageingMs: number, lookUp: (sequence: Sequence) => number) {
    assert(groupCount >= 1, "there is at least one group");
    this.#groups = Array.from({ length: groupCount }, () => []);
    this.#ageingMs = ageingMs;
    this.#lookUp = lookUp;
    this.#turn = groupCount - 1;
    this.#credit = groupCount;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence, nowMs: number): void {
    this.#put(sequence, this.#groupOf(sequence, nowMs));
    this.#size += 1;
  }

  /** Takes a sequence out without a pick; false if it is not in. */
  remove(sequence: Sequence): boolean {
    const group = this.#groups[sequence.group]!;
    const index = group.indexOf(sequence);
    if (index < 0) return false;
    group.splice(index, 1);
    this.#size -= 1;
    return true;
  }

  /** Whose turn it is. Stays the same sequence until it is taken or removed, or the cached shares or the
   *  waiting change. */
  peek(nowMs: number): Sequence | null {
    if (this.#size === 0) return null;
    this.#promoteAged(nowMs);
    for (;;) {
      const head = this.#groups[this.#turn]![0];
      if (head === undefined || this.#credit === 0) {
        this.#turn = (this.#turn === 0 ? this.#groups.length : this.#turn) - 1;
        this.#credit = this.#turn + 1;
        continue;
      }
      const group = this.#groupOf(head, nowMs);
      if (group === this.#turn) return head;
      this.#groups[this.#turn]!.shift();
      this.#put(head, group);
    }
  }

  /** Takes out the sequence that `peek` returned: one pick of its group's turn. */
  take(sequence: Sequence): void {
    const head = this.#groups[this.#turn]!.shift();
    assert(head === sequence && this.#credit > 0, "the sequence whose turn it is is taken");
    this.#credit -= 1;
    this.#size -= 1;
  }

  #groupOf(sequence: Sequence, nowMs: number): number {
    const top = this.#groups.length - 1;
    if (nowMs - sequence.arrivedMs > this.#ageingMs) return top;
    return Math.min(top, Math.floor((this.#groups.length * this.#lookUp(sequence)) / sequence.length));
  }

  /** The head of a group is its oldest, so the heads are all there is to look at. */
  #promoteAged(nowMs: number): void {
    const top = this.#groups.length - 1;
    for (let g = 0; g < top; g++) {
      const group = this.#groups[g]!;
      while (group.length > 0 && nowMs - group[0]!.arrivedMs > this.#ageingMs) this.#put(group.shift()!, top);
    }
  }

  #put(sequence: Sequence, group: number): void {
    sequence.group = group;
    insertByArrival(this.#groups[group]!, sequence);
  }
}

/** Inserts into a list that is in order of arrival; most belong at its end. */
export function insertByArrival(list: Sequence[], sequence: Sequence): void {
  let index = list.length;
  while (index > 0 && list[index - 1]!.arrival > sequence.arrival) index -= 1;
  list.splice(index, 0, sequence);
}

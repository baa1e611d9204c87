import { assert } from "../../base/assert.ts";
import { ArrivalList } from "../../scheduler/engine/queue/arrival-list.ts";
import type { QueueOrder } from "../../scheduler/engine/queue/queue-order.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";

/**
 * Queue order of Preble's prioritised request scheduling (arXiv:2407.00023 §3.3). Sequences are in P groups
 * by the cached share of their prompt: group g = min(P - 1, floor(P × cached / length)). Group g gets g + 1
 * of every P(P + 1)/2 picks: mostly cached sequences go first, and none starves.
 *
 * Our choices where the paper is silent or its code differs:
 * - The picks are a deficit round robin, from the highest group down, with the quantum g + 1. A group that
 * stays non-empty is served within P(P + 1)/2 picks; a group that runs empty forfeits the rest of its turn.
 * - Within a group, first come first served. P = 1 is plain FCFS.
 * - The cached share is looked up again when a sequence's turn comes (the code does it on arrival only). If
 * its group has changed, the sequence moves and the turn continues.
 */
export class PriorityGroups implements QueueOrder {
  readonly #groups: ArrivalList<Sequence>[];
  readonly #lookUp: (sequence: Sequence) => number;
  /** Group of the current turn, and its remaining picks. */
  #turn: number;
  #credit: number;
  #size = 0;

  /** `lookUp` returns how many of a sequence's known tokens are cached now. */
  constructor(groupCount: number, lookUp: (sequence: Sequence) => number) {
    assert(groupCount >= 1, "there is at least one group");
    this.#groups = Array.from({ length: groupCount }, () => new ArrivalList());
    this.#lookUp = lookUp;
    this.#turn = groupCount - 1;
    this.#credit = groupCount;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    this.#put(sequence, this.#groupOf(sequence));
    this.#size += 1;
  }

  remove(sequence: Sequence): boolean {
    const isRemoved = sequence.queued.bucket?.remove(sequence) ?? false;
    if (isRemoved) this.#size -= 1;
    return isRemoved;
  }

  peek(): Sequence | null {
    if (this.#size === 0) return null;
    for (;;) {
      const group = this.#groups[this.#turn]!;
      const head = group.first;
      if (head === undefined || this.#credit === 0) {
        this.#turn = (this.#turn === 0 ? this.#groups.length : this.#turn) - 1;
        this.#credit = this.#turn + 1;
        continue;
      }
      const wanted = this.#groupOf(head);
      if (wanted === this.#turn) return head;
      group.remove(head);
      this.#put(head, wanted);
    }
  }

  /** Uses one pick of its group's turn. */
  take(sequence: Sequence): void {
    const group = this.#groups[this.#turn]!;
    assert(group.first === sequence && this.#credit > 0, "the next sequence is taken");
    group.remove(sequence);
    this.#credit -= 1;
    this.#size -= 1;
  }

  #groupOf(sequence: Sequence): number {
    const count = this.#groups.length;
    return Math.min(count - 1, Math.floor((count * this.#lookUp(sequence)) / sequence.length));
  }

  #put(sequence: Sequence, group: number): void {
    sequence.queued.bucket = this.#groups[group]!;
    sequence.queued.bucket.add(sequence);
  }
}

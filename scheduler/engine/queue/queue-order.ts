import type { Sequence } from "../sequence.ts";

/** In which order the waiting have their turn. */
export interface QueueOrder {
  readonly size: number;
  /** Whether those of other lanes may pass a sequence for which there is no room. */
  readonly hasLanes: boolean;
  /** A step is about to be planned. */
  beginStep(): void;
  add(sequence: Sequence): void;
  /** Takes a sequence out without a turn; false if it is not in. */
  remove(sequence: Sequence): boolean;
  /** More or less of a sequence is cached now than before, whether it waits in this order or not. */
  matched?(sequence: Sequence): void;
  /** Whose turn it is; null: nobody waits. `passed`: a bit for each lane that is left out. Stays the same sequence
   *  until it is taken or removed, or until cached prefixes or the waiting change. */
  peek(nowMs: number, passed: number): Sequence | null;
  /** Takes out the one that `peek` returned; it will compute so many tokens of its prompt. */
  take(sequence: Sequence, computedTokens: number): void;
  /** Whether it has waited so long that others wait for it. */
  isAged(sequence: Sequence, nowMs: number): boolean;
}

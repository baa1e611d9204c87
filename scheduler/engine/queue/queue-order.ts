import type { Objective } from "../../core.ts";
import type { Sequence } from "../sequence.ts";

/** Port: in which order waiting sequences are admitted. */
export interface QueueOrder {
  readonly size: number;
  /** Whether sequences of other objectives may pass one for which there is no room; by default they may not. */
  readonly hasLanes?: boolean;
  /** A step is about to be planned. */
  beginStep?(): void;
  add(sequence: Sequence): void;
  /** A sequence that will not wait in this order is charged here from now on. */
  adopt?(sequence: Sequence): void;
  /** Takes a sequence out without a turn; false if it is not in. */
  remove(sequence: Sequence): boolean;
  /** More or less of a sequence is cached now than before, whether it waits in this order or not. */
  matched?(sequence: Sequence): void;
  /** The next sequence; null: there is none. `passed`: objectives that are left out, by orders with lanes. Stays the same sequence until it is
   *  taken or removed, or until cached prefixes or the waiting sequences change. */
  peek(nowMs: number, passed?: ReadonlySet<Objective>): Sequence | null;
  /** Takes out the one that `peek` returned; it will compute so many tokens of its prompt. */
  take(sequence: Sequence, computedTokens: number): void;
  /** Whether it has waited so long that no other is admitted before it for want of room; by default never. */
  isAged?(sequence: Sequence, nowMs: number): boolean;
}

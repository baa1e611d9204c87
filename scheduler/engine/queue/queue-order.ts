import type { Objective } from "../../core.ts";
import type { Sequence } from "../sequence.ts";

/** Port: the order in which waiting sequences are admitted. */
export interface QueueOrder {
  readonly size: number;
  /**
   * True if objectives have queues of their own: then sequences of other objectives may overtake one for
   * which there is no room. Absent: false.
   */
  readonly separatesObjectives?: boolean;
  /** Records that a step is about to be planned. */
  beginStep?(): void;
  add(sequence: Sequence): void;
  /** Charges the output of a sequence here from now on that does not wait in this order. */
  adopt?(sequence: Sequence): void;
  /** Removes a sequence that is not admitted; false if it is not in the order. */
  remove(sequence: Sequence): boolean;
  /** Records that the cached length of a sequence has changed, whether it waits in this order or not. */
  matched?(sequence: Sequence): void;
  /**
   * The next sequence; null: there is none. `passed`: objectives that are left out, by orders with lanes.
   * Stays the same sequence until it is taken or removed, or until cached prefixes or the waiting sequences
   * change.
   */
  peek(nowMs: number, passed?: ReadonlySet<Objective>): Sequence | null;
  /** Removes the sequence that `peek` returned, which will compute `computedTokens` of its prompt. */
  take(sequence: Sequence, computedTokens: number): void;
  /** True if it has waited so long that none may overtake it when it lacks room; by default never. */
  isAged?(sequence: Sequence, nowMs: number): boolean;
}

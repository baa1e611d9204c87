import type { SequenceId } from "../core.ts";
import { CAUSES, causeIndex } from "./causes.ts";

/** Another sequence for which one waited. */
export interface Blocker {
  readonly sequence: SequenceId;
  readonly ms: number;
}

/** Account of one sequence's time on one engine, as reported. */
export interface AccountState {
  /** Milliseconds by cause, from the sequence's arrival at the engine on. */
  readonly ms: Float64Array;
  /** Prompt tokens computed, and tokens computed once more. */
  readonly computedTokens: number;
  readonly recomputedTokens: number;
  /** Tokens later than the TBT target, and the milliseconds by which they were late, summed. */
  readonly lateTokens: number;
  readonly lateMs: number;
  readonly preemptions: number;
  /** The prompt that kept it waiting longest; null: none did. */
  readonly behind: Blocker | null;
  /** The sequence that computed a prefix for which it waited; null: it waited for none. */
  readonly prefixOwner: Blocker | null;
}

/**
 * State of an account between two changes.
 *
 * fresh:  it waits for the next plan.
 * queued: the reasons of its lane are the causes (lane-waits.ts).
 * fixed:  `cause` is the cause.
 * out:    it runs, and steps decide; or it is paused.
 */
type AccountKind = "fresh" | "queued" | "fixed" | "out";

/**
 * Time of one sequence on one engine by cause. Every instant from its arrival to `sinceMs` is in `ms` once, so that the
 * vector sums to the time that has passed. Written by time-accounts.ts.
 */
export class TimeAccount implements AccountState {
  readonly ms = new Float64Array(CAUSES);
  sinceMs: number;
  kind: AccountKind = "out";
  cause = causeIndex.step_in_flight;
  /** Milliseconds of its lane's reasons when it joined the lane; null: it is in none. */
  joined: Float64Array | null = null;
  /** Time at which its wait began. */
  waitingMs = 0;
  /** Highest number of its tokens that were ever computed. */
  computedMost: number;
  computedTokens = 0;
  recomputedTokens = 0;
  lateTokens = 0;
  lateMs = 0;
  preemptions = 0;
  behind: Blocker | null = null;
  prefixOwner: Blocker | null = null;
  /** Milliseconds of its drafts in its last step. */
  draftMs = 0;

  /** `computedMost`: tokens that a lost engine had computed. */
  constructor(nowMs: number, computedMost: number) {
    this.sinceMs = nowMs;
    this.computedMost = computedMost;
  }

  /** Accounts for the time up to now with one cause. */
  spend(cause: number, nowMs: number): number {
    const spentMs = Math.max(0, nowMs - this.sinceMs);
    this.ms[cause]! += spentMs;
    this.sinceMs = nowMs;
    return spentMs;
  }

  /** The account for a report. `ms` is shared if the sequence has ended. */
  state(hasEnded: boolean): AccountState {
    const { computedTokens, recomputedTokens, lateTokens, lateMs, preemptions, behind, prefixOwner } = this;
    const ms = hasEnded ? this.ms : this.ms.slice();
    return { ms, computedTokens, recomputedTokens, lateTokens, lateMs, preemptions, behind, prefixOwner };
  }
}

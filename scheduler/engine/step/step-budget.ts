import type { SequenceId } from "../../core.ts";
import type { ObjectiveRules } from "../../objective.ts";
import type { Sequence } from "../sequence.ts";

/** What a budget reads of a sequence. */
export type SequenceView = Pick<
  Sequence,
  "id" | "objective" | "tbtMs" | "pacing" | "length" | "isDecoding" | "isPaused"
>;

/** How many prompt and forced tokens a step has room for. One object serves the planning of one step. */
export interface StepBudget {
  /** Decodes that this step leaves out. */
  readonly skipped: ReadonlySet<SequenceId>;
  /** When the first stream will have waited longer than its target; Infinity: no stream has one. */
  readonly deadlineMs: number;
  /** Tokens that the next chunk may have, of a prompt with `left` ≥ 1 tokens to compute after `context` computed ones
   *  that has got none for `waitedMs`; Returns 0 for none in this step. Changes nothing. */
  offer(left: number, context: number, waitedMs: number, objective: ObjectiveRules): number;
  /** A chunk of `tokens` after `context` is in the step. */
  take(tokens: number, context: number, objective: ObjectiveRules): void;
  /** Puts forced tokens of a decode into the step beside its one, after `context` computed ones: as many of `left` ≥ 1 as there
   *  is room for. Returns how many. */
  takeForced(left: number, context: number, objective: ObjectiveRules): number;
  /** Whether the streams that run keep their targets if one more sequence runs with them for good. `isAged`: it has
   *  waited so long that others have to give way. */
  admits(sequence: SequenceView, isAged: boolean): boolean;
  /** That one more sequence runs now. */
  join(sequence: SequenceView): void;
}

/** What there is to do besides decodes: offline prompts count only where there are no others, which would have to wait for the
 *  larger steps that suit a crowd. */
export interface Backlog {
  readonly countsOffline: boolean;
  /** At most what all prompts, waiting ones too, have still to compute. */
  readonly promptTokens: number;
  /** What of that is likely to be computed, as far as it is not cached. */
  readonly likelyTokens: number;
  /** Sequences that wait, and would fit. */
  readonly waiting: number;
  /** So many tokens of prompts find room in a step, as answers end, spread over all that wait: those that find room now need no answer to
   *  end. ≥ 1; Infinity: all find room now. */
  readonly refillTokens: number;
  /** Tokens that an answer is likely to have. */
  readonly answerTokens: number;
  /** Tokens that a stream's prompt, as they were of late, has to compute: what is cached of it left out. */
  readonly streamTokens: number;
}

import type { SequenceId } from "../../core.ts";
import type { OfferedDraft } from "../../draft/sequence-drafts.ts";
import type { ObjectiveRules } from "../../objective.ts";
import type { Sequence } from "../sequence.ts";

/** The fields of a sequence that a budget reads. */
export type SequenceView = Pick<
  Sequence,
  "id" | "objective" | "tbtMs" | "pacing" | "length" | "isDecoding" | "isPaused"
>;

/** A draft for a decode of the step. */
export interface DraftOffer extends Pick<OfferedDraft, "chances"> {
  readonly sequence: Pick<SequenceView, "id" | "length" | "objective" | "pacing">;
  /**
   * True for a model with recurrent layers: the device saves the state before the draft. If it rejects a draft
   * token, it restores that state and recomputes the accepted tokens. Absent: false.
   */
  readonly rollsBack?: boolean;
}

/** Limits the prompt, forced and drafted tokens of a step. One object serves the planning of one step. */
export interface StepBudget {
  /** Decodes that this step leaves out. */
  readonly skipped: ReadonlySet<SequenceId>;
  /** Time at which the first stream misses its target; Infinity: no stream has one. */
  readonly deadlineMs: number;
  /**
   * Offers tokens to a prompt with `left` ≥ 1 tokens to compute after `context` computed ones, which has had
   * no chunk for `waitedMs`. 0: none in this step. Changes nothing.
   */
  offer(left: number, context: number, waitedMs: number, objective: ObjectiveRules): number;
  /** Adds a chunk of `tokens` after `context` to the step. */
  take(tokens: number, context: number, objective: ObjectiveRules): void;
  /**
   * Adds forced (jump-forward) tokens of a decode to the step besides its one, after `context` computed ones. Adds
   * as many of `left` ≥ 1 as there is room for, and returns how many.
   */
  takeForced(left: number, context: number, objective: ObjectiveRules): number;
  /**
   * True if verifying drafts could pay in this step; else drafters need not be asked. Called after the step's
   * other chunks are taken. `rowsMax`: rows that the device has room for.
   */
  wantsDrafts(rowsMax: number): boolean;
  /** Adds draft tokens to decodes of the step. Returns how many tokens of each offered draft the step verifies. */
  takeDrafts(offers: readonly DraftOffer[], rowsMax: number): readonly number[];
  /**
   * True if the running streams keep their targets with one more sequence for good. `isAged`: it has waited
   * so long that others make way.
   */
  admits(sequence: SequenceView, isAged: boolean): boolean;
  /** Records that one more sequence runs. */
  join(sequence: SequenceView): void;
}

/**
 * Work besides decodes. Offline prompts count only where there are no others: a crowd of them would make
 * steps larger, which online prompts would wait for.
 */
export interface Backlog {
  readonly countsOffline: boolean;
  /** Most tokens that all prompts, waiting ones included, have to compute. */
  readonly promptTokens: number;
  /** Expected uncached tokens of these. */
  readonly likelyTokens: number;
  /** Number of waiting sequences that would fit. */
  readonly waiting: number;
  /**
   * Prompt tokens that find room per step as answers end, spread over all that wait; those that fit now need
   * no answer to end. ≥ 1; Infinity: all fit now.
   */
  readonly refillTokens: number;
  /** Expected tokens of an answer. */
  readonly answerTokens: number;
  /** Average uncached tokens of recent streams' prompts. */
  readonly streamTokens: number;
}

/** Inputs of a step's plan. */
export interface StepView {
  /** In order of arrival. */
  readonly running: readonly SequenceView[];
  readonly backlog: Backlog;
  readonly nowMs: number;
  /** Most tokens of a step whose size the cost model decides. */
  readonly tokensMax: number;
}

/** Pass that fills a step. */
export interface StepPass {
  /** True if decodes are in the step and get their pages, for which others may be preempted. */
  readonly hasDecodes: boolean;
  /** True if chunks of prompts are in the step, and sequences are admitted. */
  readonly hasPrompts: boolean;
  /** The budget of one step. */
  open(view: StepView): StepBudget;
}

/** Port: what steps are made of. One object serves one engine. */
export interface StepRule {
  /** Passes to try in turn, until one has anything to compute. */
  passes(pagesAvailable: number, pagesTotal: number): readonly StepPass[];
}

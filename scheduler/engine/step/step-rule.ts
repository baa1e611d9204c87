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
   * True if the device saves a state before the draft, and computes the right tokens before a wrong one again.
   * Absent: false.
   */
  readonly goesBack?: boolean;
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
   * Adds forced tokens of a decode to the step beside its one, after `context` computed ones: as many of
   * `left` ≥ 1 as there is room for. Returns how many.
   */
  takeForced(left: number, context: number, objective: ObjectiveRules): number;
  /**
   * True if rows of drafts might be worth their time: else drafters need not be asked. Called last of all
   * when the step's other chunks are taken. `rowsMax`: rows that the device has room for.
   */
  wantsDrafts(rowsMax: number): boolean;
  /** Adds rows of drafts to decodes of the step. Returns how many tokens of each offered draft are checked. */
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

import type { Backlog, SequenceView, StepBudget } from "./step-budget.ts";

/** What a step is planned from. */
export interface StepView {
  /** In order of arrival. */
  readonly running: readonly SequenceView[];
  readonly backlog: Backlog;
  readonly nowMs: number;
  /** Most tokens of a step whose size the cost model decides. */
  readonly tokensMax: number;
}

/** One way to fill a step. */
export interface StepPass {
  /** Whether decodes get their pages, for which others may be preempted, and are in the step. */
  readonly hasDecodes: boolean;
  /** Whether chunks of prompts are in the step, and sequences are admitted. */
  readonly hasPrompts: boolean;
  /** The budget of one step. */
  open(view: StepView): StepBudget;
}

/** Port: what steps are made of. One object serves one engine. */
export interface StepRule {
  /** What is tried in turn, until a pass has anything to compute. */
  passes(pagesAvailable: number, pagesTotal: number): readonly StepPass[];
}

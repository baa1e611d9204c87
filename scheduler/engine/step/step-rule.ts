import type { Backlog, SequenceView, StepBudget } from "./step-budget.ts";

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

import type { PageMove } from "../../core.ts";
import type { Sequence } from "../sequence.ts";
import type { StepBudget } from "./step-budget.ts";

/** The next `count` ≥ 1 tokens of a sequence. */
export interface PlannedChunk {
  readonly sequence: Sequence;
  readonly count: number;
}

/** A step that is being filled. */
export class StepDraft {
  readonly budget: StepBudget;
  readonly nowMs: number;
  readonly chunks: PlannedChunk[] = [];
  readonly moves: PageMove[] = [];
  /** Unfinished prompts by arrival, those included that the step admits. */
  readonly prompts: Sequence[];

  constructor(budget: StepBudget, running: readonly Sequence[], nowMs: number) {
    this.budget = budget;
    this.nowMs = nowMs;
    this.prompts = running.filter(({ isDecoding, isPaused }) => !isDecoding && !isPaused);
  }

  /** Adds tokens of a prompt, as many as the budget has offered. */
  addPrompt(sequence: Sequence, count: number): void {
    this.budget.take(count, sequence.computed);
    this.chunks.push({ sequence, count });
  }
}

import type { TokenId } from "../../../base/token.ts";
import type { PageMove } from "../../core.ts";
import { insertByArrival } from "../queue/arrival-list.ts";
import type { Sequence } from "../sequence.ts";
import type { StepBudget } from "./step-rule.ts";

/** A chunk: the next `count` ≥ 1 tokens of a sequence. */
export interface PlannedChunk {
  readonly sequence: Sequence;
  readonly count: number;
  /** Draft tokens behind all known ones, which the step verifies. Absent: none. */
  readonly draft?: readonly TokenId[];
  /** True if the draft comes from the client's prediction. */
  readonly isPredicted?: boolean;
}

/** A step that is being filled. */
export class StepBuilder {
  readonly budget: StepBudget;
  readonly nowMs: number;
  readonly chunks: PlannedChunk[] = [];
  readonly moves: PageMove[] = [];
  /** Unfinished prompts by arrival, including those that the step admits. */
  readonly prompts: Sequence[] = [];
  #hasAdmitted = false;

  /**
   * Begins a step with every decode of `running` but those that the budget leaves out; without `hasDecodes`,
   * with none.
   */
  constructor(budget: StepBudget, running: readonly Sequence[], hasDecodes: boolean, nowMs: number) {
    this.budget = budget;
    this.nowMs = nowMs;
    const { skipped } = budget;
    for (const sequence of running) {
      if (sequence.isPaused) continue;
      if (!sequence.isDecoding) this.prompts.push(sequence);
      else if (hasDecodes && (skipped.size === 0 || !skipped.has(sequence.id))) {
        this.chunks.push({ sequence, count: 1 });
      }
    }
  }

  /** Adds `count` tokens to the chunk of a decode, whose one the budget has counted already. */
  lengthen(index: number, count: number): void {
    const { sequence } = this.chunks[index]!;
    this.chunks[index] = { sequence, count: 1 + count };
  }

  /** Adds a draft to a chunk that computes all known tokens of its sequence. */
  draft(index: number, draft: readonly TokenId[], isPredicted = false): void {
    this.chunks[index] = { ...this.chunks[index]!, draft, isPredicted };
  }

  /** True if the step admits a sequence, so that it cannot be planned again. */
  get hasAdmitted(): boolean {
    return this.#hasAdmitted;
  }

  /**
   * Returns how many of the tokens that the budget has offered join the step. A prompt that must be one chunk gets
   * all or none; alone in a step it gets all, whatever the budget.
   */
  partOf({ isWhole, length }: Sequence, offered: number): number {
    if (!isWhole || offered === length) return offered;
    return this.chunks.length === 0 ? length : 0;
  }

  /** Adds a sequence that the step admits, with tokens of its prompt, and the copy that it needs. */
  admit(sequence: Sequence, count: number, move: PageMove | null): void {
    this.#hasAdmitted = true;
    if (move !== null) this.moves.push(move);
    insertByArrival(this.prompts, sequence);
    this.budget.join(sequence);
    this.addPrompt(sequence, count);
  }

  /** Adds a chunk of a prompt, which the budget has offered. */
  addPrompt(sequence: Sequence, count: number): void {
    this.budget.take(count, sequence.computed, sequence.objective);
    this.chunks.push({ sequence, count });
  }
}

import type {
  DraftOffer,
  SequenceView,
  StepBudget,
  StepPass,
} from "../../scheduler/engine/step/step-rule.ts";
import { openStepRule } from "../../scheduler/engine/step/time-budget.ts";
import type { ObjectiveRules } from "../../scheduler/objective.ts";
import type { BatchPolicy, StepBaseline } from "../../scheduler/policy.ts";

/** Verifies the first `tokens` of every draft, at any cost, beside the chunks of another rule. */
export function fixedDrafts(batch: BatchPolicy, tokens: number): StepBaseline {
  return {
    kind: "baseline",
    stepTokens: 2 ** 20,
    isStallFree: false,
    open: (_, spec, costs) => {
      const inner = openStepRule(batch, spec, costs);
      return {
        passes: (pagesAvailable, pagesTotal) =>
          inner.passes(pagesAvailable, pagesTotal).map(
            (pass): StepPass => ({
              ...pass,
              open: (view) => new FixedDrafts(pass.open(view), tokens),
            }),
          ),
      };
    },
  };
}

class FixedDrafts implements StepBudget {
  readonly #inner: StepBudget;
  readonly #tokens: number;

  constructor(inner: StepBudget, tokens: number) {
    this.#inner = inner;
    this.#tokens = tokens;
  }

  get skipped(): StepBudget["skipped"] {
    return this.#inner.skipped;
  }

  get deadlineMs(): number {
    return this.#inner.deadlineMs;
  }

  offer(...asked: Parameters<StepBudget["offer"]>): number {
    return this.#inner.offer(...asked);
  }

  take(tokens: number, context: number, objective: ObjectiveRules): void {
    this.#inner.take(tokens, context, objective);
  }

  takeForced(...asked: Parameters<StepBudget["takeForced"]>): number {
    return this.#inner.takeForced(...asked);
  }

  wantsDrafts(): boolean {
    return true;
  }

  takeDrafts(offers: readonly DraftOffer[], rowsMax: number): readonly number[] {
    let left = rowsMax;
    return offers.map(({ chances }) => {
      const tokens = Math.min(this.#tokens, chances.length, left);
      left -= tokens;
      return tokens;
    });
  }

  admits(sequence: SequenceView, isAged: boolean): boolean {
    return this.#inner.admits(sequence, isAged);
  }

  join(sequence: SequenceView): void {
    this.#inner.join(sequence);
  }
}

import type { SequenceId } from "../../scheduler/core.ts";
import type { StepBudget, StepPass } from "../../scheduler/engine/step/step-rule.ts";
import type { StepBaseline } from "../../scheduler/policy.ts";

/**
 * Static token budget: every decode, and prompts in the rest of `stepTokens` (Sarathi-Serve, arXiv:2403.02310
 * §4.3).
 */
export function staticBudget(stepTokens: number): StepBaseline {
  return { kind: "baseline", stepTokens, isStallFree: true, open };
}

function open(stepTokens: number): ReturnType<StepBaseline["open"]> {
  const passes = [staticPass(stepTokens)];
  return { passes: () => passes };
}

/** Step pass with every decode, then prompts in the rest. */
export function staticPass(stepTokens: number): StepPass {
  return {
    hasDecodes: true,
    hasPrompts: true,
    open: ({ running }) => {
      let decodes = 0;
      for (const { isDecoding, isPaused } of running) if (isDecoding && !isPaused) decodes += 1;
      return new StaticBudget(stepTokens - decodes);
    },
  };
}

/**
 * Budget that decodes leave of a fixed number of tokens: 0, never negative, when there are more decodes than
 * tokens.
 */
class StaticBudget implements StepBudget {
  readonly skipped: ReadonlySet<SequenceId> = new Set();
  readonly deadlineMs = Number.POSITIVE_INFINITY;
  #tokensLeft: number;

  constructor(tokensLeft: number) {
    this.#tokensLeft = Math.max(0, tokensLeft);
  }

  offer(left: number): number {
    return Math.min(left, this.#tokensLeft);
  }

  take(tokens: number): void {
    // A prompt that is computed in one chunk may be longer than the budget.
    this.#tokensLeft = Math.max(0, this.#tokensLeft - tokens);
  }

  takeForced(left: number): number {
    const tokens = Math.min(left, this.#tokensLeft);
    this.#tokensLeft -= tokens;
    return tokens;
  }

  wantsDrafts(): boolean {
    return false;
  }

  takeDrafts(): readonly number[] {
    return [];
  }

  admits(): boolean {
    return true;
  }

  join(): void {}
}

import type { SequenceView, StepBudget, StepPass } from "../../scheduler/engine/step/step-rule.ts";
import { objectives } from "../../scheduler/objective.ts";
import type { StepBaseline } from "../../scheduler/policy.ts";

/**
 * Caps on the total tokens of an engine's sequences: while one of them is interactive, and otherwise. Null:
 * as many as fit.
 */
export interface TokenCaps {
  readonly latency: number;
  readonly throughput: number | null;
}

/**
 * Wraps a step rule so that it admits only sequences within caps on their tokens, as published systems bound
 * step times. One sequence may always run.
 */
export function capped(rule: StepBaseline, caps: TokenCaps): StepBaseline {
  return {
    ...rule,
    open: (stepTokens, spec, costs) => {
      const inner = rule.open(stepTokens, spec, costs);
      return {
        passes: (pagesAvailable, pagesTotal) =>
          inner.passes(pagesAvailable, pagesTotal).map(
            (pass): StepPass => ({
              ...pass,
              open: (view) => new Capped(pass.open(view), caps, view.running),
            }),
          ),
      };
    },
  };
}

/** Returns the cap of an engine, given its running sequences. */
export function capOf({ latency, throughput }: TokenCaps, hasLatency: boolean): number {
  return hasLatency ? latency : (throughput ?? Number.POSITIVE_INFINITY);
}

class Capped implements StepBudget {
  readonly #inner: StepBudget;
  readonly #caps: TokenCaps;
  #sequences = 0;
  #tokens = 0;
  #hasLatency = false;

  constructor(inner: StepBudget, caps: TokenCaps, running: readonly SequenceView[]) {
    this.#inner = inner;
    this.#caps = caps;
    for (const member of running) this.#count(member);
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

  take(...taken: Parameters<StepBudget["take"]>): void {
    this.#inner.take(...taken);
  }

  takeForced(...asked: Parameters<StepBudget["takeForced"]>): number {
    return this.#inner.takeForced(...asked);
  }

  wantsDrafts(...asked: Parameters<StepBudget["wantsDrafts"]>): boolean {
    return this.#inner.wantsDrafts(...asked);
  }

  takeDrafts(...asked: Parameters<StepBudget["takeDrafts"]>): readonly number[] {
    return this.#inner.takeDrafts(...asked);
  }

  admits(sequence: SequenceView, isAged: boolean): boolean {
    const cap = capOf(this.#caps, this.#hasLatency || isLatency(sequence));
    const fits = this.#sequences === 0 || this.#tokens + sequence.length <= cap;
    return fits && this.#inner.admits(sequence, isAged);
  }

  join(sequence: SequenceView): void {
    this.#count(sequence);
    this.#inner.join(sequence);
  }

  #count(member: SequenceView): void {
    this.#sequences += 1;
    this.#tokens += member.length;
    this.#hasLatency ||= isLatency(member);
  }
}

function isLatency({ objective }: SequenceView): boolean {
  return objective === objectives.latency;
}

import { assert } from "../../base/assert.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import { FirstCome } from "../../scheduler/engine/queue/first-come.ts";
import type { StepBudget, StepPass } from "../../scheduler/engine/step/step-rule.ts";
import type { CacheBaseline, Policy, QueueBaseline, StepBaseline } from "../../scheduler/policy.ts";
import { noCache, plainAdmission, recencyCache } from "./engine-rules.ts";
import { roundRobin } from "./placements.ts";
import { staticBudget } from "./static-budget.ts";

/** First come, first served. */
export const firstCome: QueueBaseline = { kind: "baseline", open: () => new FirstCome() };

/** Memory-related part of a policy. */
export type MemoryRules = Pick<Policy, "admission"> & { readonly cache: CacheBaseline };

/** vLLM 0.2 as Sarathi-Serve's authors ran it: no prefix cache, one percent of the pages kept free. */
export const uncached: MemoryRules = {
  admission: { sequencesMax: 128, watermark: 0.01, rule: plainAdmission },
  cache: noCache,
};

/** vLLM 0.19 and SGLang: a prefix cache, and pages to the last. */
export const cached: MemoryRules = {
  admission: { sequencesMax: 256, watermark: 0, rule: plainAdmission },
  cache: recencyCache,
};

/** vLLM before chunked prefill: whole prompts in steps of their own, first come, first served. */
export const vllm: Policy = {
  name: "vllm",
  placement: roundRobin,
  queue: firstCome,
  batch: promptsFirst(8192),
  ...uncached,
};

/** vLLM with chunked prefill, prefix cache, and its limit on sequences. */
export function vllmChunked(sequencesMax = 256): Policy {
  return {
    ...vllm,
    name: "vllm-chunked",
    batch: staticBudget(2048),
    admission: { ...cached.admission, sequencesMax },
    cache: cached.cache,
  };
}

/**
 * Prompt-first rule: whole prompts in steps of their own, while decodes wait. At most `stepTokens` in a step,
 * but always at least one prompt.
 */
export function promptsFirst(stepTokens: number): StepBaseline {
  return {
    kind: "baseline",
    stepTokens,
    isStallFree: false,
    open: (stepTokens, { stepTokensMax }) => {
      const passes = [wholePrompts(stepTokens, stepTokensMax), decodesAlone];
      return { passes: () => passes };
    },
  };
}

/** Step pass of whole prompts. `tokensMax`: step limit of the device. */
export function wholePrompts(stepTokens: number, tokensMax: number): StepPass {
  return { hasDecodes: false, hasPrompts: true, open: () => new WholePrompts(stepTokens, tokensMax) };
}

/** Step pass of every decode. */
export const decodesAlone: StepPass = {
  hasDecodes: true,
  hasPrompts: false,
  open: () => new WholePrompts(0, 0),
};

/**
 * Budget of whole prompts only: as many as fit `stepTokens`, but at least one, cut at the step limit of the
 * device.
 */
class WholePrompts implements StepBudget {
  readonly skipped: ReadonlySet<SequenceId> = new Set();
  readonly deadlineMs = Number.POSITIVE_INFINITY;
  readonly #tokensMax: number;
  #tokensLeft: number;
  #isEmpty = true;

  constructor(stepTokens: number, tokensMax: number) {
    this.#tokensLeft = stepTokens;
    this.#tokensMax = tokensMax;
  }

  offer(left: number): number {
    if (this.#isEmpty) return Math.min(left, this.#tokensMax);
    return left <= this.#tokensLeft ? left : 0;
  }

  take(tokens: number): void {
    assert(tokens <= this.#tokensLeft || this.#isEmpty, "one prompt, or the budget");
    this.#tokensLeft -= tokens;
    this.#isEmpty = false;
  }

  takeForced(): number {
    return 0;
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

import type { CostModel, StepShape } from "../cost/cost-model.ts";
import { causeIndex } from "./causes.ts";
import type { TimeAccount } from "./time-account.ts";

/** A chunk as far as it determines its share of a step. */
export interface SplitChunk {
  /** Tokens computed besides draft tokens, context tokens before them, and draft tokens. */
  readonly tokens: number;
  readonly context: number;
  readonly drafted: number;
}

const noPrompts: StepShape["prompts"] = [];

/**
 * Divides the time of one step among causes, for each of its chunks. The cost model predicts the time of the chunk
 * alone; the rest of the step's predicted time is due to other decodes and prompts. If the step took longer than
 * predicted, the difference counts as `slower`; if it took less, all parts shrink in proportion.
 *
 * Costs four predictions for all decodes together and two for each chunk of a prompt.
 */
export class StepSplit {
  readonly #costs: CostModel;
  readonly #shape: StepShape;
  readonly #wholeMs: number;
  readonly #decodesMs: number;
  readonly #scale: number;
  /** Time of one decode without context, and by token of context. */
  #decodeMs = 0;
  #contextMs = 0;

  /** `tookMs`: time of the step, > 0. */
  constructor(costs: CostModel, shape: StepShape, tookMs: number) {
    const { decodes, decodeContext, prompts } = shape;
    this.#costs = costs;
    this.#shape = shape;
    this.#wholeMs = costs.stepMs(shape);
    this.#decodesMs =
      prompts.length === 0 || decodes === 0 ? this.#wholeMs : costs.stepMs({ ...shape, prompts: noPrompts });
    this.#scale = this.#wholeMs > 0 ? Math.min(1, tookMs / this.#wholeMs) / tookMs : 0;
    if (decodes === 0) return;
    const mean = decodeContext / decodes;
    this.#decodeMs = costs.stepMs({ prompts: noPrompts, decodes: 1, decodeContext: 0 });
    const meanMs = costs.stepMs({ prompts: noPrompts, decodes: 1, decodeContext: mean });
    this.#contextMs = mean === 0 ? 0 : (meanMs - this.#decodeMs) / mean;
  }

  /** Accounts for `spentMs` of the step with a chunk of an answer. */
  answer(account: TimeAccount, { tokens, context, drafted }: SplitChunk, spentMs: number): void {
    const own = this.#decodeMs + context * this.#contextMs;
    const drafts = drafted === 0 ? 0 : Math.max(0, this.#draftedMs(context, drafted) - own);
    const aloneMs = tokens === 1 ? own + drafts : this.#promptMs(tokens, context, 0, 0);
    const ms = this.#parts(aloneMs, this.#decodesMs, spentMs);
    account.draftMs = aloneMs > 0 ? (ms.own * drafts) / aloneMs : 0;
    account.ms[causeIndex.decode]! += ms.own;
    account.ms[causeIndex.decode_others]! += ms.decodes;
    account.ms[causeIndex.decode_prompts]! += ms.prompts;
    account.ms[causeIndex.slower]! += ms.rest;
  }

  /** Accounts for `spentMs` of the step with a chunk of a prompt, of which a share was computed before. */
  prompt(account: TimeAccount, { tokens, context }: SplitChunk, againShare: number, spentMs: number): void {
    const { decodes, decodeContext } = this.#shape;
    const aloneMs = this.#promptMs(tokens, context, 0, 0);
    const besideMs = decodes === 0 ? aloneMs : this.#promptMs(tokens, context, decodes, decodeContext);
    const ms = this.#parts(aloneMs, besideMs, spentMs);
    account.ms[causeIndex.prompt]! += ms.own * (1 - againShare);
    account.ms[causeIndex.recompute]! += ms.own * againShare;
    account.ms[causeIndex.prompt_decodes]! += ms.decodes;
    account.ms[causeIndex.prompt_others]! += ms.prompts;
    account.ms[causeIndex.slower]! += ms.rest;
  }

  /** Divides `spentMs`: the chunk alone, other decodes, prompts, and time beyond the prediction. */
  #parts(aloneMs: number, withDecodesMs: number, spentMs: number) {
    const scale = this.#scale * spentMs;
    const alone = Math.min(Math.max(0, aloneMs), this.#wholeMs);
    const decodes = Math.min(Math.max(alone, withDecodesMs), this.#wholeMs);
    const own = alone * scale;
    const besides = (decodes - alone) * scale;
    const prompts = (this.#wholeMs - decodes) * scale;
    return { own, decodes: besides, prompts, rest: Math.max(0, spentMs - own - besides - prompts) };
  }

  #promptMs(tokens: number, context: number, decodes: number, decodeContext: number): number {
    return this.#costs.stepMs({ prompts: [{ tokens, context }], decodes, decodeContext });
  }

  /** Time of a decode with drafts, alone. */
  #draftedMs(context: number, drafted: number): number {
    const decodes = 1 + drafted;
    return this.#costs.stepMs({ prompts: noPrompts, decodes, decodeContext: decodes * context });
  }
}

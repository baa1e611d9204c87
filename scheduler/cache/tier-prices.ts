import { type CostModel, promptMs } from "../cost/cost-model.ts";

/** Tokens over which the time of a page is averaged: a step of a single page would mostly be its fixed cost. */
const AVERAGED_TOKENS = 512;

/** Most waiting sequences that count as delayed by the computation of a prompt. */
const DELAYED_MAX = 16;

/** Number of sequences that a prefill delays: its own and others that wait, capped. */
export function delayedBy(waiting: number): number {
  return Math.min(DELAYED_MAX, Math.max(1, waiting));
}

/**
 * Milliseconds that `tokens` prompt tokens after `context` others add to a step of one token, which the sequence
 * needs in any case.
 */
export function computeMs(costs: CostModel, tokens: number, context: number): number {
  return Math.max(0, promptMs(costs, tokens + 1, context) - promptMs(costs, 1, context + tokens));
}

/** Milliseconds to compute a page of `pageTokens` tokens after `context` others, as one of many. */
export function pageMs(costs: CostModel, pageTokens: number, context: number): number {
  return (computeMs(costs, AVERAGED_TOKENS, context) * pageTokens) / AVERAGED_TOKENS;
}

/** How large a step should be, of the sizes that may be. */

/** A size that a step may have, and what it would take. */
export interface SizeOption {
  /** Tokens, decodes included; more than the decodes alone. */
  readonly size: number;
  readonly tookMs: number;
}

/** What the sizes are weighed against. */
export interface SizeContext {
  readonly decodes: number;
  /** Of them, those whose delay counts. */
  readonly streams: number;
  /** A step of the decodes alone; 0 if there are none. */
  readonly aloneMs: number;
  /** Of which the contexts of decodes take so much: it is the same for every size. */
  readonly contextMs: number;
  /** Prompts that are unfinished or wait, ≥ 1. */
  readonly prompts: number;
  /** Their tokens that are likely to be computed, > 0. */
  readonly promptTokens: number;
  /** Tokens that an answer is likely to have, > 0. */
  readonly answerTokens: number;
  /** Where no stream is delayed, a step that takes no longer than this is not made smaller. */
  readonly patienceMs: number;
}

/** A smaller step whose total delay is larger by no more than this part is the better one: streams are smoother, and a request
 *  that arrives meanwhile waits less for its end. */
const DELAY_LOSS = 0.03;
/** See `leastDelay`. */
const WAIT_WEIGHT = 8;

/**
 * The size with the least total delay, of those in which streams keep their targets. With p
 * tokens of prompts in each step of T milliseconds, n prompts of P tokens each are done after S = nP / p steps. Until then
 * each prompt waits for T a step, and each of d streams is late by what a step takes longer than it would without prompts,
 * T - T0. For each token of a prompt that is
 *
 *   delay = (8 n T' + d' (T - T0)) / p
 *
 * The more prompts wait, the more a step's fixed part counts, and the larger steps become; the more streams there are, the
 * smaller. But answers follow prompts: steps with p tokens of prompts begin p / P answers each, and if an answer has G
 * tokens, p G / P streams go on at a time. So d' is on its way from d to that number, S / (S + G) of it, and T' is T with that many
 * contexts to read: they are work of the answers, and no fixed part of steps that larger ones would spread out. Without
 * this, steps would grow for as long as prompts wait, and answers begin without end while none ends.
 *
 * A wait counts eight times, since requests that arrive later wait, too: a rule that takes the present queue for all that there
 * is lets a queue stand for ever. `options` are in order of size, and not empty.
 */
export function leastDelay(options: readonly SizeOption[], context: SizeContext): number {
  const {
    decodes,
    streams: now,
    aloneMs,
    contextMs,
    prompts,
    promptTokens,
    answerTokens,
    patienceMs,
  } = context;
  const streamMs = decodes === 0 ? 0 : contextMs / decodes;
  const delays = options.map(({ size, tookMs }) => {
    const tokens = Math.max(1, size - decodes);
    const steps = promptTokens / tokens;
    const lasting = (answerTokens * prompts) / steps;
    const streams = now + ((lasting - now) * steps) / (steps + answerTokens);
    const waitMs = tookMs + (lasting - now) * streamMs;
    return (WAIT_WEIGHT * prompts * waitMs + streams * (tookMs - aloneMs)) / tokens;
  });
  const least = Math.min(...delays);
  const isShort = options[delays.indexOf(least)]!.tookMs <= patienceMs;
  const allowed = now === 0 && isShort ? least : least * (1 + DELAY_LOSS);
  return options[delays.findIndex((delay) => delay <= allowed)]!.size;
}

/**
 * Whether a step also computes what little is left of all prompts, and takes `longerMs` more. Else one prompt waits for `restMs`, the step
 * after, while the others, which end with this one, and all streams go on sooner.
 */
export function takesTail(
  longerMs: number,
  restMs: number,
  { prompts, streams }: Pick<SizeContext, "prompts" | "streams">,
): boolean {
  return (WAIT_WEIGHT * prompts + streams) * longerMs <= WAIT_WEIGHT * restMs;
}

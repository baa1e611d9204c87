/** Choice of a step's size among the possible ones. */

/** Possible size of a step, and its predicted time. */
export interface SizeOption {
  /** Tokens, decodes included; more than the decodes alone. */
  readonly size: number;
  readonly tookMs: number;
}

/** State against which the sizes are weighed. */
export interface SizeContext {
  readonly decodes: number;
  /** Running streams whose delay counts. */
  readonly streams: number;
  /** A step of the decodes alone; 0 if there are none. */
  readonly aloneMs: number;
  /** Part of that time for the contexts of decodes: it is the same for every size. */
  readonly contextMs: number;
  /** Prompts that are unfinished or wait, ≥ 1. */
  readonly prompts: number;
  /** Their tokens that are likely to be computed, > 0. */
  readonly promptTokens: number;
  /** Tokens that an answer is likely to have, > 0. */
  readonly answerTokens: number;
  /** Time up to which a step is not made smaller, if no stream is delayed. */
  readonly patienceMs: number;
}

/**
 * A smaller step whose total delay is larger by no more than this part is the better one: streams are
 * smoother, and a request that arrives meanwhile waits less for its end.
 */
const DELAY_LOSS = 0.03;
/** See `leastDelay`. */
const WAIT_WEIGHT = 8;

/**
 * Returns the size with the least total delay, among those with which streams keep their targets. In each
 * step, p tokens of prompts are computed in T milliseconds. So n prompts of P tokens each are done after S =
 * nP / p steps. Until then each prompt waits for T a step. Each of d streams is late by T - T0 a step, where
 * T0 is the time of a step without prompts. For each token of a prompt that is
 *
 *   delay = (8 n T' + d' (T - T0)) / p
 *
 * The more prompts wait, the more a step's fixed part counts, and the larger steps become. The more streams
 * there are, the smaller steps become. But answers follow prompts: steps with p tokens of prompts begin p / P
 * answers each. If an answer has G tokens, p G / P streams run at a time. So d' is on its way from d to that
 * number, S / (S + G) of it. T' is T with that many contexts to read. They are work of the answers, and no
 * fixed part of steps that larger ones would spread out. Without this, steps would grow for as long as
 * prompts wait: answers would begin without end while none ends.
 *
 * A wait counts eight times, since requests that arrive later wait, too. A rule that considers only the
 * present queue lets a queue stand forever. `options` are in order of size, and not empty.
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
 * True if a step also computes the short rest of all prompts, and takes `longerMs` more. Otherwise one prompt
 * waits for `restMs`, the time of the next step. The other prompts, which end with this step, and all streams
 * would then continue sooner.
 */
export function takesTail(
  longerMs: number,
  restMs: number,
  { prompts, streams }: Pick<SizeContext, "prompts" | "streams">,
): boolean {
  return (WAIT_WEIGHT * prompts + streams) * longerMs <= WAIT_WEIGHT * restMs;
}

import type { Usage } from "../answer/events.ts";
import type { AnswerTimes } from "../http/measure.ts";

/** Timings of an answer in llama-server's format. */
export function timingsOf(usage: Usage, { promptMs, answerMs }: AnswerTimes): object {
  const { promptTokens, cachedTokens, completionTokens, drafts } = usage;
  const computed = promptTokens - cachedTokens;
  // The last step of the prefill samples the first token: `answerMs` is the time of the tokens after it.
  const followed = Math.max(0, completionTokens - 1);
  return {
    cache_n: cachedTokens,
    prompt_n: computed,
    prompt_ms: promptMs,
    prompt_per_token_ms: ratio(promptMs, computed),
    prompt_per_second: ratio(1000 * computed, promptMs),
    predicted_n: completionTokens,
    predicted_ms: answerMs,
    predicted_per_token_ms: ratio(answerMs, followed),
    predicted_per_second: ratio(1000 * followed, answerMs),
    ...(drafts === undefined ? {} : { draft_n: drafts.tokens, draft_n_accepted: drafts.accepted }),
  };
}

/** Prompt progress in llama-server's format. */
export function progressOf(
  processed: number,
  { promptTokens: total, cachedTokens: cache }: Usage,
  times: AnswerTimes | undefined,
): object {
  return { prompt_progress: { total, cache, processed, time_ms: times?.promptMs ?? 0 } };
}

function ratio(a: number, b: number): number {
  return b === 0 ? 0 : a / b;
}

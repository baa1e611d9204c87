/** Bounds on the size of one answer: they limit memory and the time of the thread that writes it. */
import type { GenerationOptions, GenerationRequest } from "../answer/generation.ts";
import { badRequest } from "../http/errors.ts";
import { requestLimits } from "../request/limits.ts";

/**
 * Adds a bound on the tokens of each choice where the request sets none. Throws 400 if the request may exceed
 * a bound: prompts × choices × tokens × log probabilities per token. `logprobsMax` counts all tokens with
 * their alternatives; null for a stream, which the server does not hold.
 */
export function boundedOptions(
  options: GenerationOptions,
  prompts: GenerationRequest["prompts"],
  contextMax: number,
  logprobsMax: number | null,
): GenerationOptions {
  const { answersMax, answerTokensMax, carriedMax } = requestLimits;
  const answers = prompts.length * options.choices;
  if (answers > answersMax)
    throw badRequest(
      `a request may have ${answersMax} choices at most, those of all its prompts together, but has ${answers}`,
      "n",
    );
  const { logitBias, badWords, allowedTokens } = options.sampling;
  const drawn = 2 * logitBias.length + (allowedTokens?.length ?? 0) + (badWords?.flat().length ?? 0);
  const promptTokens = prompts.reduce((sum, { length }) => sum + length, 0);
  const carried = options.choices * (promptTokens + prompts.length * drawn);
  if (carried > carriedMax)
    throw badRequest(
      `the choices of a request may carry ${carriedMax} tokens of prompts and biases, each those of its own, but carry ${carried}`,
      "n",
    );
  if (logprobsMax === null) return options;
  const { topLogprobs } = options.sampling;
  const perToken = topLogprobs === null ? 0 : 1 + topLogprobs;
  const shortest = prompts.reduce((least, { length }) => Math.min(least, length), contextMax);
  const tokens = Math.min(options.tokensMax ?? contextMax, contextMax - shortest);
  const room = Math.min(
    Math.floor(answerTokensMax / answers),
    perToken === 0 ? contextMax : Math.floor(logprobsMax / (answers * perToken)),
  );
  if (tokens <= room) return options;
  if (options.tokensMax === null) return { ...options, tokensMax: room };
  const all = answers * tokens;
  const each = `${answers} choice${answers === 1 ? "" : "s"} of ${tokens} tokens`;
  throw all > answerTokensMax
    ? badRequest(
        `an answer that is not streamed may hold ${answerTokensMax} tokens, those of all choices together, but ${each} may hold ${all}`,
        "max_tokens",
      )
    : badRequest(
        `an answer may hold ${logprobsMax} log probabilities, those of alternatives included, but ${each} with ${topLogprobs} alternatives each may hold ${all * perToken}`,
        "logprobs",
      );
}

/**
 * Throws 400 if the answer would repeat too many prompt tokens. `times`: number of repetitions of each prompt
 * token per choice.
 */
export function expectRepeatable(
  prompts: readonly { readonly length: number }[],
  choices: number,
  times: number,
): void {
  const { answerTokensMax: max } = requestLimits;
  const repeated = prompts.reduce((sum, { length }) => sum + length, 0) * choices * times;
  if (repeated <= max) return;
  throw badRequest(
    `an answer may repeat ${max} tokens of its prompts, those of all choices together, but would repeat ${repeated}`,
    "n",
  );
}

import { defaultJsonLimits } from "../http/limits.ts";
/** Upper limits on requests. */
export const requestLimits = {
  choicesMax: 128,
  topLogprobsMax: 20,
  /** Choices of all prompts of a request together. */
  answersMax: 2048,
  /**
   * Tokens of prompts and token biases that a request's choices carry to the engines, counted for each
   * choice.
   */
  carriedMax: 4_194_304,
  /** Tokens of an answer that is not streamed, or of repeated prompts, over all choices. */
  answerTokensMax: 1_048_576,
  /** Log probabilities in an answer, those of alternatives included. */
  answerLogprobsMax: 262_144,
  /** Log probabilities in a response of the Responses API, whose stream repeats all of them at its end. */
  responseLogprobsMax: 32_768,
  /**
   * Log probabilities of a request's prompts together: for each token its own and those of its alternatives.
   */
  promptLogprobsMax: 65_536,
  stopStringsMax: 16,
  stopStringBytesMax: 256,
  stopTokensMax: 128,
  logitBiasMax: 1024,
  allowedTokensMax: 16_384,
  badWordsMax: 128,
  badWordBytesMax: 256,
  messagesMax: 10_000,
  contentPartsMax: 10_000,
  toolsMax: 1024,
  toolDescriptionCharactersMax: 65_536,
  toolParametersBytesMax: 65_536,
  /** Limits on JSON inside a string of the body, such as a call's arguments. */
  innerJson: { ...defaultJsonLimits, jsonKeysMax: 10_000 },
  promptsMax: 128,
  /** Characters of texts among the token ids of a request's prompts, and among those of its biases. */
  mixedCharactersMax: 8192,
  embeddingInputsMax: 2048,
  cacheSaltCharactersMax: 1024,
  /** Largest absolute value of a priority. */
  priorityMax: 1_000_000,
  temperatureMax: 2,
  /** Maximum temperature where `min_p` or `top_k` drops unlikely tokens. */
  flatTemperatureMax: 5,
  /** Lower bound that keeps divided logits finite: the engines refuse values below a millionth. */
  repetitionPenaltyMin: 0.01,
  repetitionPenaltyMax: 100,
  templateArgumentsMax: 16,
  /** Names in the header `x-bunting-ignored`. */
  ignoredNamesMax: 32,
  ignoredNameCharactersMax: 64,
} as const;

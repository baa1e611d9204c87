import { defaultJsonLimits } from "../http/limits.ts";
/** What a request may ask for at most. */
export const requestLimits = {
  choicesMax: 128,
  topLogprobsMax: 20,
  /** Choices of all prompts of a request together. */
  answersMax: 2048,
  /** Tokens of prompts, and biases of tokens, that a request's choices carry to the engines, each those of its own. */
  carriedMax: 4_194_304,
  /** Tokens that an answer holds which is not streamed, or repeats of its prompts: of all choices together. */
  answerTokensMax: 1_048_576,
  /** Log probabilities that an answer holds, those of alternatives included. */
  answerLogprobsMax: 262_144,
  /** The same of a response, which is kept, and whose stream tells all of them again at its end. */
  responseLogprobsMax: 32_768,
  /** Of a request's prompts together: for each token its own and those of its alternatives. */
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
  /** Of JSON that comes as a text within the body's JSON, such as a call's arguments. */
  innerJson: { ...defaultJsonLimits, jsonKeysMax: 10_000 },
  promptsMax: 128,
  /** Of texts among the token ids of a request's prompts, and among those of its biases. */
  mixedCharactersMax: 8192,
  embeddingInputsMax: 2048,
  cacheSaltCharactersMax: 1024,
  /** Either way from 0. */
  priorityMax: 1_000_000,
  temperatureMax: 2,
  /** What divides a logit must leave it finite: the engines refuse less than a millionth. */
  repetitionPenaltyMin: 0.01,
  repetitionPenaltyMax: 100,
  templateArgumentsMax: 16,
  /** Of fields without effect that an answer's header tells of. */
  ignoredNamesMax: 32,
  ignoredNameCharactersMax: 64,
} as const;

/**
 * Prompts in llama-server's forms: OpenAI's forms, objects that hold a text, and lists that mix texts and
 * tokens.
 */
import type { TokenId } from "../../../base/token.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type FieldKind, fieldsOf } from "../fields.ts";
import { tokensOf } from "../openai/inputs.ts";
import { notSupported } from "../openai/support.ts";

/** Kind of a field that holds such prompts. */
export const llamaPromptKind: FieldKind = {
  type: ["string", "array", "object"],
  items: { type: ["string", "integer", "array", "object"], items: { type: ["string", "integer"] } },
};

/**
 * Converts prompts to OpenAI's forms. Leaves invalid values, or more than `countMax`, for OpenAI's parser to
 * refuse.
 */
export function plainPrompts(given: unknown, path: string, model: ServedModel, countMax: number): unknown {
  const tokensOfText = shortTextTokens(path, model);
  if (!Array.isArray(given) || typeof given[0] === "number" || hasBoth(given))
    return plainPrompt(given, path, model, tokensOfText);
  if (given.length > countMax) return given;
  return given.map((item, index) => plainPrompt(item, `${path}[${index}]`, model, tokensOfText));
}

function plainPrompt(
  given: unknown,
  path: string,
  model: ServedModel,
  tokensOfText: ServedModel["tokensOf"],
): unknown {
  if (Array.isArray(given)) {
    const isMixed = given.length <= model.contextMax && hasBoth(given);
    return isMixed ? mixedTokens(given, path, model, tokensOfText) : given;
  }
  if (typeof given !== "object" || given === null) return given;
  const object = fieldsOf(given, path);
  if (object.raw("multimodal_data") !== undefined)
    throw notSupported(object.pathOf("multimodal_data"), "this");
  return object.requiredString("prompt_string");
}

function hasBoth(list: readonly unknown[]): boolean {
  return list.some((item) => typeof item === "string") && list.some((item) => typeof item === "number");
}

function mixedTokens(
  list: readonly unknown[],
  path: string,
  model: ServedModel,
  tokensOfText: ServedModel["tokensOf"],
): TokenId[] {
  const isText = (item: unknown): item is string => typeof item === "string";
  // Refuses an invalid token by its index, as in a list of tokens alone.
  const tokens = tokensOf(
    list.map((item) => (isText(item) ? 0 : item)),
    path,
    model.vocabSize,
  );
  return list.flatMap((item, index) => (isText(item) ? tokensOfText(item) : [tokens[index]!]));
}

/**
 * Tokenises texts among tokens on this thread: a limit on all texts of a field keeps them short. Throws 400
 * beyond it.
 */
export function shortTextTokens(path: string, model: ServedModel): ServedModel["tokensOf"] {
  const { mixedCharactersMax: max } = requestLimits;
  let characters = 0;
  return (text) => {
    characters += text.length;
    if (characters > max)
      throw badRequest(`${path}: texts among tokens may have ${max} characters at most, and have more`, path);
    return model.tokensOf(text);
  };
}

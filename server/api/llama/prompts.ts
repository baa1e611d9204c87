/** Prompts as llama-server takes them: as OpenAI's, texts as objects that hold them, and texts among tokens. */
import type { TokenId } from "../../../base/token.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { fieldsOf } from "../fields.ts";
import { tokensOf } from "../openai/inputs.ts";
import { notSupported } from "../openai/support.ts";

/** The same in OpenAI's forms. What is neither, or more than `countMax`, is left as it is, for those to refuse. */
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
  // What is no token is refused by its place, as in a list of tokens alone.
  const tokens = tokensOf(
    list.map((item) => (isText(item) ? 0 : item)),
    path,
    model.vocabSize,
  );
  return list.flatMap((item, index) => (isText(item) ? tokensOfText(item) : [tokens[index]!]));
}

/** Makes texts among tokens into tokens, here and now: all of a field together are short. */
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

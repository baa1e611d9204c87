/** Prompts as llama-server takes them: as OpenAI's, texts as objects that hold them, and texts among tokens. */
import type { TokenId } from "../../../scheduler/core.ts";
import { badRequest } from "../../http/errors.ts";
import { fieldsOf } from "../fields.ts";
import { tokensOf } from "../openai/inputs.ts";
import { notSupported } from "../openai/support.ts";
import { requestLimits } from "../request-limits.ts";
import type { ServedModel } from "../served-model.ts";

/** The same in OpenAI's forms. What is neither is left as it is, for those to refuse. */
export function plainPrompts(given: unknown, path: string, model: ServedModel): unknown {
  if (Array.isArray(given)) {
    if (given.length <= model.contextMax && hasBoth(given)) return mixedTokens(given, path, model);
    if (typeof given[0] === "number") return given;
    return given.map((item, index) => plainPrompts(item, `${path}[${index}]`, model));
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

/** Texts become tokens here and now, and so are short. */
function mixedTokens(list: readonly unknown[], path: string, model: ServedModel): TokenId[] {
  const { mixedCharactersMax: max } = requestLimits;
  const characters = list.reduce<number>(
    (sum, item) => sum + (typeof item === "string" ? item.length : 0),
    0,
  );
  if (characters > max)
    throw badRequest(`${path}: texts among tokens have ${max} characters at most, here ${characters}`, path);
  const isText = (item: unknown): item is string => typeof item === "string";
  // What is no token is refused by its place, as in a list of tokens alone.
  const tokens = tokensOf(
    list.map((item) => (isText(item) ? 0 : item)),
    path,
    model.vocabSize,
  );
  return list.flatMap((item, index) => (isText(item) ? model.tokensOf(item) : [tokens[index]!]));
}

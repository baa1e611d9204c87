/** Prompts before the inputs of embedding models, by the names in the model's files. */
import { badRequest } from "../http/errors.ts";
import { type EmbedServices, embeddingOf } from "./embed.ts";
import { type Fields, refusal } from "./fields.ts";

/** Prompt names to look for by `input_type`, in order. */
const namesOfType: Readonly<Record<string, readonly string[]>> = {
  query: ["query", "search_query"],
  search_query: ["search_query", "query"],
  document: ["document", "passage", "search_document"],
  passage: ["passage", "document", "search_document"],
  search_document: ["search_document", "document", "passage"],
};

/**
 * Prompt that `prompt_name` or `input_type` asks for; undefined: the model's default. A model without prompts
 * embeds every type alike. Throws 400 for a name that the model lacks.
 */
export function embeddingPrompt(fields: Fields, services: Pick<EmbedServices, "model">): string | undefined {
  const { prompts } = embeddingOf(services);
  const name = fields.string("prompt_name");
  const type = fields.string("input_type");
  if (name !== undefined && type !== undefined)
    throw badRequest("prompt_name and input_type are two ways to ask for one prompt: give one", "input_type");
  const byName = prompts?.byName ?? {};
  if (type !== undefined && prompts === undefined) return "";
  const asked = name ?? type;
  if (asked === undefined) return undefined;
  const param = name === undefined ? "input_type" : "prompt_name";
  const names = name === undefined ? (namesOfType[asked] ?? [asked]) : [asked];
  const found = names.find((one) => Object.hasOwn(byName, one));
  if (found !== undefined) return byName[found];
  const known = Object.keys(byName);
  if (known.length === 0) throw badRequest(`${param} is "${asked}", and this model has no prompts`, param);
  throw refusal(param, `one of ${known.join(", ")}, the prompts of this model`, asked);
}

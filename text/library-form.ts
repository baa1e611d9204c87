/**
 * Rewrites parts of a tokenizer.json that the library reads otherwise than the package `tokenizers`, as splits
 * by regular expressions that both read alike. Refuses parts that have no such form by their names.
 */
import { type JsonObject, TokenizerError } from "./tokenizer-file.ts";

/** Characters of a word, as Rust's regular expressions have them. */
const word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
const punctuation = "[!-\\/:-@\\[-`{-~\\p{P}]";

/** The pre-tokenizer in a form for the library. Throws TokenizerError. */
export function preTokenizerForm(component: unknown): JsonObject | null {
  if (component === null || component === undefined) return null;
  const part = component as JsonObject;
  switch (part.type) {
    case "Sequence":
      return { ...part, pretokenizers: (part.pretokenizers as unknown[]).map(preTokenizerForm) };
    case "Digits":
      return split(part.individual_digits === true ? "\\p{N}" : "\\p{N}+");
    case "Punctuation":
      return splitBy(punctuation, String(part.behavior ?? "Isolated"), false);
    case "Whitespace":
      return splitBy(`[${word}]+|[^${word}\\s]+`, "Removed", true);
    case "WhitespaceSplit":
      return splitBy("\\s+", "Removed", false);
    case "Split":
      return splitBy(patternOf(part), String(part.behavior), part.invert === true);
    case "ByteLevel":
    case "Metaspace":
      return part;
    default:
      throw new TokenizerError(
        `tokenizer.json: pre-tokenizer ${JSON.stringify(part.type)} is not supported with this model`,
      );
  }
}

function split(pattern: string): JsonObject {
  return { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
}

/** A split whose matches and gaps become pieces as the behaviour says. */
function splitBy(pattern: string, behavior: string, invert: boolean): JsonObject {
  const gap = `(?:(?!${pattern})[\\s\\S])+`;
  switch (behavior) {
    case "Isolated":
      return split(pattern);
    case "Removed":
      return { type: "Split", pattern: { Regex: pattern }, behavior, invert };
    case "Contiguous":
      return split(`(?:${pattern})+`);
    case "MergedWithPrevious":
      if (!invert) return split(`${gap}(?:${pattern})|(?:${pattern})`);
      break;
    case "MergedWithNext":
      if (!invert) return split(`(?:${pattern})${gap}|(?:${pattern})`);
      break;
  }
  throw new TokenizerError(
    `tokenizer.json: a split that is ${behavior}${invert ? " and inverted" : ""} is not supported`,
  );
}

function patternOf({ pattern }: JsonObject): string {
  const { Regex: expression, String: text } = (pattern ?? {}) as { Regex?: string; String?: string };
  return expression ?? (text ?? "").replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
}

/** Throws TokenizerError for options of a BPE model that the library reads wrongly. */
export function expectPlainModel(model: JsonObject): void {
  for (const name of ["continuing_subword_prefix", "end_of_word_suffix"])
    if (typeof model[name] === "string" && model[name] !== "")
      throw new TokenizerError(
        `tokenizer.json: model.${name} ${JSON.stringify(model[name])} is not supported with this model`,
      );
  if (Number(model.dropout ?? 0) > 0)
    throw new TokenizerError(`tokenizer.json: model.dropout ${model.dropout} makes tokens at random`);
}

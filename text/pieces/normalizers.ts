/** Normalizers of tokenizer.json for WordPiece and Unigram models, as the package `tokenizers` computes them. */
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";
import { bertMarks, marks, normalForm, unclean } from "./characters.ts";
import { precompiledNormalizer } from "./precompiled.ts";

export type Normalize = (text: string) => string;

const isSpace = /\p{White_Space}/u;
const ideographs =
  /[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{f900}-\u{faff}\u{2f800}-\u{2fa1f}]/gu;

/** Normalizer of a tokenizer.json; refused by name if it is not supported. */
export function normalizerOf(component: unknown): Normalize {
  if (component === null || component === undefined) return (text) => text;
  const normalizer = component as JsonObject;
  switch (normalizer.type) {
    case "Sequence": {
      const steps = (normalizer.normalizers as unknown[]).map(normalizerOf);
      return (text) => steps.reduce((normal, step) => step(normal), text);
    }
    case "BertNormalizer":
      return bertNormalizer(normalizer);
    case "Precompiled":
      return precompiledNormalizer(String(normalizer.precompiled_charsmap));
    case "NFC":
    case "NFD":
    case "NFKC":
    case "NFKD": {
      const form = normalizer.type;
      return (text) => normalForm(text, form);
    }
    case "Lowercase":
      return lowered;
    case "StripAccents":
      return (text) => text.replace(marks, "");
    case "Prepend":
      return (text) => (text === "" ? "" : `${normalizer.prepend}${text}`);
    case "Strip":
      return (text) => strip(text, normalizer.strip_left === true, normalizer.strip_right === true);
    case "Replace":
      return replacer(normalizer);
    default:
      throw new TokenizerError(
        `tokenizer.json: normalizer ${JSON.stringify(normalizer.type)} is not supported`,
      );
  }
}

/**
 * Cleans a text, separates ideographs by spaces, and removes accents and capitals, as far as the options say
 * so.
 */
function bertNormalizer(options: JsonObject): Normalize {
  const { clean_text: cleans = true, handle_chinese_chars: parts = true, lowercase = true } = options;
  const strips = options.strip_accents ?? lowercase;
  return (text) => {
    let normal = text;
    if (cleans === true) normal = normal.replace(unclean, cleaned);
    if (parts === true) normal = normal.replace(ideographs, " $& ");
    if (strips === true) normal = normalForm(normal, "NFD").replace(bertMarks, "");
    return lowercase === true ? lowered(normal) : normal;
  };
}

/** A space in place of white space; other control characters are removed. */
function cleaned(character: string): string {
  if (character === "\t" || character === "\n" || character === "\r") return " ";
  return isSpace.test(character) && !/\p{Cc}/u.test(character) ? " " : "";
}

const capitals = /[^\P{Changes_When_Lowercased}]/gu;

/** Lower case of each character on its own: a sigma does not depend on its position in the word. */
function lowered(text: string): string {
  return text.replace(capitals, (character) => character.toLowerCase());
}

function strip(text: string, left: boolean, right: boolean): string {
  const from = left ? text.replace(/^\p{White_Space}+/u, "") : text;
  return right ? from.replace(/\p{White_Space}+$/u, "") : from;
}

function replacer({ pattern, content }: JsonObject): Normalize {
  const { String: literal, Regex: source } = pattern as { String?: string; Regex?: string };
  const to = String(content);
  if (literal !== undefined) return (text) => text.replaceAll(literal, () => to);
  const expression = new RegExp(source!, "gu");
  return (text) => text.replace(expression, () => to);
}

/** Pre-tokenizers of tokenizer.json: how they split a text into the words that become tokens. */
import { ByteLevelPreTokenizer, SplitPreTokenizer } from "@huggingface/tokenizers";
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";
import { literal } from "./added-tokens.ts";
import { punctuation, wordCharacters } from "./characters.ts";

/** Consecutive pieces of a text. */
export interface Pieces {
  readonly texts: readonly string[];
  /** True if the first one begins where the whole text begins. */
  readonly atStart: boolean;
}

/** Splits each piece further. */
export type Split = (pieces: Pieces) => Pieces;

const spaces = /\p{White_Space}+/u;
const eachPunctuation = new RegExp(`(${punctuation})`, "u");

/** Splits of a pre-tokenizer. Refuses unknown kinds by name. */
export function splitOf(component: unknown): Split {
  if (component === null || component === undefined) return (pieces) => pieces;
  const part = component as JsonObject;
  switch (part.type) {
    case "Sequence": {
      const steps = (part.pretokenizers as unknown[]).map(splitOf);
      return (pieces) => steps.reduce((before, step) => step(before), pieces);
    }
    case "BertPreTokenizer":
      return each((text) => text.split(spaces).flatMap((word) => word.split(eachPunctuation)));
    case "WhitespaceSplit":
      return each((text) => text.split(spaces));
    case "Digits":
      return splitBy(part.individual_digits === true ? "\\p{N}" : "\\p{N}+", "Isolated", false);
    case "Punctuation":
      return splitBy(`(?:${punctuation})`, String(part.behavior ?? "Isolated"), false);
    case "Whitespace":
      return splitBy(`[${wordCharacters}]+|[^${wordCharacters}\\s]+`, "Removed", true);
    case "Split":
      return splitBy(patternOf(part), String(part.behavior), part.invert === true);
    case "Metaspace":
      return metaspace(part);
    case "ByteLevel":
      return byteLevel(part);
    default:
      throw new TokenizerError(`tokenizer.json: pre-tokenizer ${JSON.stringify(part.type)} is not supported`);
  }
}

/** Splits pieces one by one. `atStart` stays true if the beginning of the first piece is kept. */
function each(split: (text: string) => readonly string[]): Split {
  return ({ texts, atStart }) => {
    const parts = texts.flatMap((text) => split(text).filter((part) => part !== ""));
    return { texts: parts, atStart: atStart && (texts[0] ?? "").startsWith(parts[0] ?? "") };
  };
}

/** Split by a pattern: `behavior` says how matches and gaps become pieces. */
function splitBy(pattern: string, behavior: string, invert: boolean): Split {
  const gap = `(?:(?!${pattern})[\\s\\S])+`;
  switch (behavior) {
    case "Isolated":
      return isolating(pattern);
    case "Removed":
      return librarySplit({ pattern: { Regex: pattern }, behavior, invert });
    case "Contiguous":
      return isolating(`(?:${pattern})+`);
    case "MergedWithPrevious":
      if (!invert) return isolating(`${gap}(?:${pattern})|(?:${pattern})`);
      break;
    case "MergedWithNext":
      if (!invert) return isolating(`(?:${pattern})${gap}|(?:${pattern})`);
      break;
  }
  throw new TokenizerError(
    `tokenizer.json: a split that is ${behavior}${invert ? " and inverted" : ""} is not supported`,
  );
}

function isolating(pattern: string): Split {
  return librarySplit({ pattern: { Regex: pattern }, behavior: "Isolated", invert: false });
}

/** Split by the library, which supports the regular expressions of Rust and Oniguruma. */
function librarySplit(options: {
  readonly pattern: { readonly Regex: string };
  readonly behavior: "Isolated" | "Removed";
  readonly invert: boolean;
}): Split {
  const splitter = new SplitPreTokenizer({ type: "Split", ...options });
  return each((text) => splitter.pre_tokenize_text(text));
}

function patternOf({ pattern }: JsonObject): string {
  const { Regex: expression, String: text } = (pattern ?? {}) as { Regex?: string; String?: string };
  return expression ?? literal(text ?? "");
}

/** Replaces spaces by a visible mark, and splits before each mark. */
function metaspace(options: JsonObject): Split {
  const mark = String(options.replacement ?? "▁");
  const usual = options.add_prefix_space === false ? "never" : "always";
  const scheme = options.prepend_scheme ?? usual;
  const words = new RegExp(`(?=${literal(mark)})`, "u");
  return ({ texts, atStart }) => ({
    texts: texts.flatMap((text, index) => {
      const marked = text.replaceAll(" ", mark);
      const begins = scheme === "always" || (scheme === "first" && atStart && index === 0);
      const whole = begins && !marked.startsWith(mark) ? mark + marked : marked;
      return options.split === false ? [whole] : whole.split(words);
    }),
    atStart,
  });
}

const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Replaces bytes by printable characters. */
function byteLevel(options: JsonObject): Split {
  const bytes = new ByteLevelPreTokenizer({ type: "ByteLevel", add_prefix_space: false, use_regex: false });
  const words: Split = options.use_regex === false ? (pieces) => pieces : isolating(gpt2);
  const prefix = options.add_prefix_space === true ? " " : "";
  return ({ texts, atStart }) => {
    const begun = texts.map((text) => (text.startsWith(prefix) ? text : prefix + text));
    const pieces = words({ texts: begun, atStart });
    return { ...pieces, texts: pieces.texts.flatMap((text) => bytes.pre_tokenize_text(text, {})) };
  };
}

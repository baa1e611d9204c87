/**
 * How byte-level tokenizers cut a text before they merge, by the names that `tokenizer.ggml.pre` has for it, with
 * what else such a name stands for. Written as tokenizer.json has it.
 */
import type { JsonObject } from "./tokenizer-file.ts";

/** What a name stands for. */
export interface PreTokenizer {
  /** Each cuts the pieces of the one before. */
  readonly patterns: readonly string[];
  /** A piece that is a token is not merged anew. */
  readonly ignoresMerges: boolean;
  /** A text begins with the beginning-of-text token unless the file says otherwise. */
  readonly addsBos: boolean;
  /** Text is composed (Unicode's form C) first. */
  readonly composes: boolean;
}

const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const ends = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const words = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+";
const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const llama3: PreTokenizer = {
  patterns: [`${contractions}|${words}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${ends}`],
  ignoresMerges: true,
  addsBos: true,
  composes: false,
};
const qwen2: PreTokenizer = {
  patterns: [`${contractions}|${words}|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${ends}`],
  ignoresMerges: false,
  addsBos: false,
  composes: true,
};
const onlyPatterns = (...patterns: string[]): PreTokenizer => ({
  patterns,
  ignoresMerges: false,
  addsBos: false,
  composes: false,
});
/** Of OpenAI's encodings cl100k and o200k, as their publisher's tiktoken has them. */
const cl100k = onlyPatterns(...llama3.patterns);
const digitsThenGpt2 = onlyPatterns("\\p{N}", gpt2);
const upper = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}";
const lower = "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}";

const cased = (before: string, after: string): string =>
  `[^\\r\\n\\p{L}\\p{N}]?[${upper}]${before}[${lower}]${after}${contractions}?`;
const o200k = onlyPatterns(
  `${cased("*", "+")}|${cased("+", "*")}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${ends}`,
);

export const preTokenizers: Readonly<Record<string, PreTokenizer>> = {
  "llama-bpe": llama3,
  "llama-v3": llama3,
  llama3,
  qwen2,
  "deepseek-r1-qwen": { ...qwen2, composes: false },
  tekken: {
    ...llama3,
    patterns: [
      `[^\\r\\n\\p{L}\\p{N}]?[${upper}]*[${lower}]+|[^\\r\\n\\p{L}\\p{N}]?[${upper}]+[${lower}]*` +
        `|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${ends}`,
    ],
  },
  // OLMo 2, Phi-4 and others; GLM-4.
  dbrx: cl100k,
  "smaug-bpe": cl100k,
  glm4: cl100k,
  "chatglm-bpe": cl100k,
  // gpt-oss, Phi-4-mini.
  "gpt-4o": o200k,
  "seed-coder": onlyPatterns(`${contractions}|${words}|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${ends}`),
  smollm: digitsThenGpt2,
  starcoder: digitsThenGpt2,
  refact: digitsThenGpt2,
  "command-r": digitsThenGpt2,
  "gpt-2": onlyPatterns(gpt2),
  // What the format's first readers did when nothing was said.
  default: onlyPatterns("[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"),
};

/** The parts of a tokenizer.json that a pre-tokenizer decides. */
export function preTokenizerJson({ patterns, composes }: PreTokenizer): JsonObject {
  const splits = patterns.map((pattern) => ({
    type: "Split",
    pattern: { Regex: pattern },
    behavior: "Isolated",
    invert: false,
  }));
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  return {
    normalizer: composes ? { type: "NFC" } : null,
    pre_tokenizer: { type: "Sequence", pretokenizers: [...splits, byteLevel] },
  };
}

/**
 * Pre-tokenizers of byte-level tokenizers: how they split a text before merging, by their names in
 * `tokenizer.ggml.pre`. They are written in the form of tokenizer.json.
 */
import type { JsonObject } from "./tokenizer-file.ts";

/** Settings that a name implies. */
export interface PreTokenizer {
  /** Patterns, each of which splits the pieces of the one before. */
  readonly patterns: readonly string[];
  /** True if a piece that is a token is not merged anew. */
  readonly ignoresMerges: boolean;
  /** True if a text begins with the beginning-of-text token unless the file says otherwise. */
  readonly addsBos: boolean;
  /** True to compose the text first (Unicode's form C). */
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
/** Patterns of OpenAI's encodings cl100k and o200k, as in its tiktoken. */
const cl100k = onlyPatterns(...llama3.patterns);
const gpt2WithoutEnds = onlyPatterns(gpt2.replace(/\|\\s\+$/, ""));
const digitsThenGpt2 = onlyPatterns("\\p{N}", gpt2);
const upper = "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}";
const lower = "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}";

const cased = (before: string, after: string): string =>
  `[^\\r\\n\\p{L}\\p{N}]?[${upper}]${before}[${lower}]${after}${contractions}?`;
const o200k = onlyPatterns(
  `${cased("*", "+")}|${cased("+", "*")}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${ends}`,
);

/** Cased letters in DeepSeek's tokenizer, a subset of those in today's Unicode. */
const casedLetters =
  "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373" +
  "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-" +
  "\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-" +
  "\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d" +
  "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-" +
  "\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-" +
  "\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-" +
  "\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-" +
  "\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\u{10400}-\u{1044f}\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}" +
  "\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}\u{1e900}-\u{1e943}";
const ideographs = "[一-龥ࠀ-一가-퟿]+";
const deepseekCoder = onlyPatterns("[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", ideographs, "\\p{N}");
const deepseek = onlyPatterns(
  "[\\r\\n]",
  `\\s?[${casedLetters}]+`,
  "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
  "\\s+$",
  ideographs,
  "\\p{N}",
);
const signsBeforeWords =
  "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" +
  `| ?[\\p{P}\\p{S}]+[\\r\\n]*|${ends}`;
const deepseek3 = onlyPatterns("\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", signsBeforeWords);
/** Trinity: digits in groups of three from the right, and scripts without spaces between words apart. */
const afmoe = onlyPatterns(
  "\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))",
  "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdfเ-\u0e7f\u0e80-\u0effក-\u17ffက-႟ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+",
  signsBeforeWords,
);
/** Youtu-LLM: runs of one East Asian script, or of its punctuation, apart. */
const youtu: PreTokenizer = {
  ...onlyPatterns(
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
    `${cased("*", "+")}|${cased("+", "*")}|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${ends}`,
  ),
  ignoresMerges: true,
};
/** Jais 2: runs of spaces in pieces whose lengths are powers of two. */
const spaces = [512, 256, 128, 64, 32, 16, 8, 4].map((count) => `\\s{${count}}(?!\\S)`).join("|");
const jais2 = onlyPatterns(
  `${contractions}|${words}|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|${spaces}|\\s{1,2}(?!\\S)|\\s`,
);
/** Qwen 3.5: combining marks belong to the letters before them. */
const qwen35: PreTokenizer = {
  ...qwen2,
  patterns: [
    `${contractions}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${ends}`,
  ],
};

export const preTokenizers: Readonly<Record<string, PreTokenizer>> = {
  "llama-bpe": llama3,
  "llama-v3": llama3,
  llama3,
  falcon3: llama3,
  "falcon-h1": llama3,
  lfm2: llama3,
  "midm-2.0": llama3,
  pixtral: llama3,
  qwen2,
  qwen35,
  "deepseek-r1-qwen": { ...qwen2, composes: false },
  f2llmv2: qwen2,
  stablelm2: qwen2,
  kormo: { ...qwen2, composes: false },
  megrez: { ...qwen2, composes: false },
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
  glm5: cl100k,
  "chatglm-bpe": cl100k,
  // gpt-oss, Phi-4-mini; Llama 4; MiniMax M2.
  "gpt-4o": o200k,
  llama4: o200k,
  kanana2: o200k,
  "minimax-m2": o200k,
  hunyuan: { ...qwen2, composes: false },
  "hunyuan-dense": deepseek3,
  "deepseek-v3": deepseek3,
  afmoe,
  youtu,
  "jais-2": jais2,
  minicpm5: { ...onlyPatterns("\\p{N}{1,3}", ...llama3.patterns), ignoresMerges: true },
  // Tiny Aya and others of Cohere: digits in groups of three from the right.
  tiny_aya: { ...o200k, patterns: ["\\d{1,3}(?=(?:\\d{3})*\\b)", ...o200k.patterns] },
  bailingmoe2: onlyPatterns(
    `'(?i:[sdmt]|ll|ve|re)|${words}|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+`,
  ),
  exaone4: onlyPatterns(gpt2),
  "seed-coder": onlyPatterns(`${contractions}|${words}|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|${ends}`),
  smollm: digitsThenGpt2,
  starcoder: digitsThenGpt2,
  refact: digitsThenGpt2,
  "command-r": digitsThenGpt2,
  exaone: digitsThenGpt2,
  "minerva-7b": digitsThenGpt2,
  mellum2: digitsThenGpt2,
  "gpt-2": onlyPatterns(gpt2),
  "roberta-bpe": onlyPatterns(gpt2),
  "phi-2": onlyPatterns(gpt2),
  "a.x-4.0": onlyPatterns(gpt2),
  gigachat: onlyPatterns(gpt2),
  mellum: onlyPatterns(gpt2),
  // Runs of spaces at the end of a text stay with what is before them.
  olmo: gpt2WithoutEnds,
  trillion: gpt2WithoutEnds,
  "granite-docling": gpt2WithoutEnds,
  "modern-bert": { ...onlyPatterns(gpt2), composes: true },
  mpt: onlyPatterns(gpt2),
  falcon: onlyPatterns("[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"),
  "deepseek-llm": deepseek,
  "deepseek-coder": deepseekCoder,
  // Default of the format's first readers.
  default: onlyPatterns("[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"),
};

/** Parts of a tokenizer.json that the pre-tokenizer determines. */
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

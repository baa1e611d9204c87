/**
 * Generates a byte-level BPE vocabulary of any size: control tokens, the 256 bytes, then invented words. A
 * syllable is one consonant and one vowel (" bajo", " rilume"), so that any output is readable. Any text
 * encodes and decodes; English splits into single letters and syllables.
 */
import type { JsonObject } from "../../model/json.ts";
import { byteOfCharacter } from "../../text/tokenizer-file.ts";

/** Control tokens with ids 0, 1, 2. */
export const controlTokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] as const;
/** End-of-text tokens. */
export const eosTokens = [2, 0] as const;
/** Control tokens and bytes: the minimum size of a vocabulary. */
export const vocabMin = controlTokens.length + 256;

// Few enough letters to make harmless words, enough for 150 000 words of at most three syllables.
const syllables = [..."bdjlmnrstvw"].flatMap((consonant) => [..."aeiou"].map((vowel) => consonant + vowel));
/** Spelling of a space in the vocabulary. */
const space = "Ġ";
/** Prime that divides no power of 55: its multiples visit all words of a length, far from alphabetically. */
const stride = 48_271;

export const chatTemplate =
  "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}" +
  "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

/** Content of tokenizer.json with the ids 0 … vocabSize - 1, vocabSize ≥ vocabMin. */
export function tokenizerJson(vocabSize: number): JsonObject {
  const vocab: Record<string, number> = {};
  controlTokens.forEach((content, id) => {
    vocab[content] = id;
  });
  for (const [character, byte] of byteOfCharacter) vocab[character] = controlTokens.length + byte;
  const merges: [string, string][] = [];
  let next = vocabMin;
  for (const [left, right] of words()) {
    if (next === vocabSize) break;
    vocab[left + right] = next;
    merges.push([left, right]);
    next += 1;
  }
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: controlTokens.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab,
      merges,
    },
  };
}

/** Content of the matching tokenizer_config.json. */
export function tokenizerConfigJson(contextMax: number): JsonObject {
  return {
    tokenizer_class: "PreTrainedTokenizerFast",
    eos_token: controlTokens[2],
    pad_token: controlTokens[0],
    clean_up_tokenization_spaces: false,
    model_max_length: contextMax,
    chat_template: chatTemplate,
  };
}

/** Endless merges, each of two existing parts: syllables, then words of one, two, three … syllables. */
function* words(): Generator<readonly [string, string]> {
  for (const syllable of syllables) yield [syllable[0]!, syllable[1]!];
  for (const syllable of syllables) yield [space, syllable];
  for (let length = 2; ; length += 1) {
    const count = syllables.length ** length;
    for (let n = 0; n < count; n += 1) {
      const word = (n * stride) % count;
      yield [spelling(Math.floor(word / syllables.length), length - 1), syllables[word % syllables.length]!];
    }
  }
}

/** Word number `word` of those with `length` syllables, with its space. */
function spelling(word: number, length: number): string {
  let text = "";
  for (let rest = word, left = length; left > 0; left -= 1) {
    text = syllables[rest % syllables.length]! + text;
    rest = Math.floor(rest / syllables.length);
  }
  return space + text;
}

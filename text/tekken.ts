/**
 * Converts Mistral's tekken.json to the tokenizer.json and tokenizer_config.json of a folder, by the rules of
 * mistral-common: byte-level tokens that merge by their ranks, behind a block of special tokens.
 */
import { byteOfCharacter, type JsonObject, TokenizerError } from "./tokenizer-file.ts";

/** Special tokens of files that list none, in the order of their ids. */
const usualSpecials = [
  ...["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"],
  ...["[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"],
  ...["[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"],
];

interface TekkenConfig {
  readonly pattern: string;
  /** Number of tokens, special ones included; the file may list more. */
  readonly default_vocab_size: number;
  readonly default_num_special_tokens: number;
}

/** The tokenizer in the form that `createTokenizer` accepts. Throws TokenizerError. */
export function tekkenTokenizer(file: JsonObject): {
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
} {
  const { pattern, default_vocab_size: size, default_num_special_tokens: count } = configOf(file);
  const specials = specialsOf(file, count);
  const spellings = spellingsOf(file, size - count);
  const vocab = Object.fromEntries(spellings.map((spelling, rank) => [spelling, count + rank]));
  const special = { special: true, single_word: false, lstrip: false, rstrip: false, normalized: false };
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
  const split = { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false };
  const bos = "<s>";
  const tokenizer = {
    version: "1.0",
    added_tokens: specials.map((content, id) => ({ id, content, ...special })),
    normalizer: null,
    pre_tokenizer: { type: "Sequence", pretokenizers: [split, byteLevel] },
    post_processor: {
      type: "TemplateProcessing",
      single: [{ SpecialToken: { id: bos, type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
      pair: [],
      special_tokens: { [bos]: { id: bos, ids: [specials.indexOf(bos)], tokens: [bos] } },
    },
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: true,
      vocab,
      merges: mergesOf(spellings),
    },
  };
  return { tokenizer, config: { bos_token: bos, eos_token: "</s>", clean_up_tokenization_spaces: false } };
}

function configOf({ config }: JsonObject): TekkenConfig {
  const { pattern, default_vocab_size, default_num_special_tokens } = (config ?? {}) as Partial<TekkenConfig>;
  const isCount = (value: unknown): value is number =>
    Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 24;
  if (typeof pattern !== "string" || !isCount(default_vocab_size) || !isCount(default_num_special_tokens))
    throw new TokenizerError(
      "config: wanted pattern, default_vocab_size and default_num_special_tokens, as in Mistral's files",
    );
  return { pattern, default_vocab_size, default_num_special_tokens };
}

/** Texts of the special tokens by id; ids without one get the placeholder that mistral-common gives them. */
function specialsOf({ special_tokens: listed }: JsonObject, count: number): readonly string[] {
  const texts = Array.from({ length: count }, (_, id) => `<SPECIAL_${id}>`);
  const known = Array.isArray(listed)
    ? (listed as readonly JsonObject[]).map(
        ({ rank, token_str: text }) => [Number(rank), String(text)] as const,
      )
    : usualSpecials.map((text, id) => [id, text] as const);
  for (const [id, text] of known) {
    if (!(id >= 0 && id < count)) throw new TokenizerError(`special_tokens: ${text} has the rank ${id}`);
    texts[id] = text;
  }
  if (new Set(texts).size < count) throw new TokenizerError("special_tokens: two have the same text");
  for (const needed of ["<s>", "</s>"])
    if (!texts.includes(needed)) throw new TokenizerError(`special_tokens: there is no ${needed}`);
  return texts;
}

const characters = new Map([...byteOfCharacter].map(([character, byte]) => [byte, character]));

/** Spellings of the first tokens by rank: a printable character for each byte. */
function spellingsOf({ vocab }: JsonObject, size: number): readonly string[] {
  if (!Array.isArray(vocab) || size < 256 || vocab.length < size)
    throw new TokenizerError(`vocab: wanted at least ${Math.max(size, 256)} tokens`);
  const spellings = new Array<string>(size).fill("");
  for (const { rank, token_bytes: bytes } of vocab as readonly JsonObject[]) {
    if (typeof rank !== "number" || rank >= size) continue;
    const spelled = Array.from(Buffer.from(String(bytes), "base64"), (byte) => characters.get(byte)!);
    spellings[rank] = spelled.join("");
  }
  const missing = spellings.indexOf("");
  if (missing >= 0) throw new TokenizerError(`vocab: no token has the rank ${missing}`);
  return spellings;
}

/** All pairs of tokens that join to a third, by the rank of that one. */
function mergesOf(spellings: readonly string[]): [string, string][] {
  const ranks = new Map(spellings.map((spelling, rank) => [spelling, rank]));
  return spellings.flatMap((whole) => {
    const ways: [string, string][] = [];
    for (let cut = 1; cut < whole.length; cut++) {
      const [left, right] = [whole.slice(0, cut), whole.slice(cut)];
      if (ranks.has(left) && ranks.has(right)) ways.push([left, right]);
    }
    return ways.sort((a, b) => ranks.get(a[0])! - ranks.get(b[0])! || ranks.get(a[1])! - ranks.get(b[1])!);
  });
}

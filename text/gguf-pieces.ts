/** WordPiece and Unigram tokenizers of GGUF files, in the form of tokenizer.json. */
import type { Metadata } from "../model/gguf-metadata.ts";
import type { JsonObject } from "./tokenizer-file.ts";

const prefix = "tokenizer.ggml";
const space = "▁";

/** Parts of the metadata that both kinds read. */
export interface PieceVocabulary {
  readonly tokens: readonly string[];
  /** True for a token that no plain text may become. */
  readonly isControl: (token: number) => boolean;
  /** Token by the name of its key; null if there is none. */
  readonly special: (name: string) => number | null;
  /** Post-processor of single texts by the file's flags; null: it adds no tokens. */
  readonly around: JsonObject | null;
}

/**
 * WordPiece: GGUF files mark the beginnings of words with ▁, tokenizer.json marks the other pieces with ##.
 */
export function wordPieceJson(metadata: Metadata, vocabulary: PieceVocabulary): JsonObject {
  const { tokens, isControl, special } = vocabulary;
  const spelt = tokens.map((text, token) => {
    if (isControl(token)) return text;
    return text.startsWith(space) ? text.slice(space.length) : `##${text}`;
  });
  const unknown = special("unknown") ?? tokens.indexOf("[UNK]");
  if (unknown < 0) metadata.refuse(`${prefix}.unknown_token_id`, "wanted: the token of unknown words");
  // Without the key, the text counts as lower-cased if no token has a capital.
  const hasCapitals = tokens.some((text, token) => !isControl(token) && /^▁?[A-Z]/.test(text));
  const lowercase = metadata.boolean(`${prefix}.normalizer.lowercase`, !hasCapitals);
  const begin = special("cls") ?? special("bos");
  const end = special("seperator") ?? special("eos"); // the format misspells the key
  return {
    normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, lowercase },
    pre_tokenizer: { type: "BertPreTokenizer" },
    post_processor: pairTemplate(tokens, begin, end === null ? [] : [end], 1),
    decoder: { type: "WordPiece", prefix: "##", cleanup: true },
    model: {
      type: "WordPiece",
      unk_token: spelt[unknown],
      continuing_subword_prefix: "##",
      max_input_chars_per_word: 100,
      vocab: Object.fromEntries(spelt.map((text, token) => [text, token])),
    },
  };
}

/** Unigram: pieces with scores, behind SentencePiece's normalization. */
export function unigramJson(metadata: Metadata, vocabulary: PieceVocabulary): JsonObject {
  const { tokens, special } = vocabulary;
  const scores =
    metadata.numbers(`${prefix}.scores`, tokens.length) ??
    metadata.refuse(`${prefix}.scores`, "wanted: an array of a score for each token");
  const unknown = special("unknown") ?? tokens.indexOf("<unk>");
  if (unknown < 0) metadata.refuse(`${prefix}.unknown_token_id`, "wanted: the token of unknown characters");
  const mapKey = `${prefix}.precompiled_charsmap`;
  const map = metadata.has(mapKey) ? Buffer.from(metadata.bytes(mapKey)).toString("base64") : "";
  const strips = metadata.boolean(`${prefix}.remove_extra_whitespaces`, true);
  const addsSpace = metadata.boolean(`${prefix}.add_space_prefix`, true);
  const metaspace = {
    type: "Metaspace",
    replacement: space,
    prepend_scheme: addsSpace ? "always" : "never",
    split: true,
  };
  const end = special("eos");
  const isEncoder = metadata.text("general.architecture") === "bert";
  return {
    normalizer: map === "" ? null : { type: "Precompiled", precompiled_charsmap: map },
    pre_tokenizer: strips
      ? { type: "Sequence", pretokenizers: [{ type: "WhitespaceSplit" }, metaspace] }
      : metaspace,
    post_processor:
      isEncoder && end !== null ? pairTemplate(tokens, special("bos"), [end, end], 0) : vocabulary.around,
    decoder: metaspace,
    model: {
      type: "Unigram",
      unk_id: unknown,
      byte_fallback: false,
      vocab: tokens.map((text, token) => [text, scores[token]!]),
    },
  };
}

/** Template of a text, and of a pair with the tokens `between` them; its second text has a type. */
function pairTemplate(
  tokens: readonly string[],
  begin: number | null,
  between: readonly number[],
  secondType: number,
): JsonObject {
  const place = (token: number | undefined, type_id: number) =>
    token === undefined ? [] : [{ SpecialToken: { id: tokens[token]!, type_id } }];
  const before = place(begin ?? undefined, 0);
  const first = { Sequence: { id: "A", type_id: 0 } };
  const second = { Sequence: { id: "B", type_id: secondType } };
  const [end] = between;
  const special = [...(begin === null ? [] : [begin]), ...between];
  return {
    type: "TemplateProcessing",
    single: [...before, first, ...place(end, 0)],
    pair: [
      ...before,
      first,
      ...between.flatMap((token) => place(token, 0)),
      second,
      ...place(end, secondType),
    ],
    special_tokens: Object.fromEntries(
      special.map((token) => [
        tokens[token]!,
        { id: tokens[token]!, ids: [token], tokens: [tokens[token]!] },
      ]),
    ),
  };
}

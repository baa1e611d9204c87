/**
 * Converts the tokenizer in a GGUF file's metadata to the tokenizer.json and tokenizer_config.json of a
 * folder, so that both kinds of model use one tokenizer. It reads three kinds itself: "gpt2", byte-level merges;
 * "llama", SentencePiece, whose scores become merges; and "gemma4", merges over SentencePiece's spelling.
 * gguf-pieces.ts reads two more: "bert", WordPiece, and "t5", Unigram. It refuses others.
 */
import { ggufEndTokens } from "../model/ends.ts";
import type { GgufFile } from "../model/gguf-file.ts";
import { Metadata } from "../model/gguf-metadata.ts";
import type { FillIds } from "./fill.ts";
import { type PieceVocabulary, unigramJson, wordPieceJson } from "./gguf-pieces.ts";
import { preTokenizerJson, preTokenizers } from "./pre-tokenizers.ts";
import type { TemplateSet } from "./template-source.ts";
import type { JsonObject } from "./tokenizer-file.ts";

/** Values of `tokenizer.ggml.token_type`. */
const TokenType = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

interface Vocabulary {
  readonly tokens: readonly string[];
  /** Type of each token. */
  readonly types: readonly number[];
}

/** End token of Gemma 4 before a tool's result, which stays visible. */
const toolResponse = "<|tool_response>";

const prefix = "tokenizer.ggml";
const space = "▁";

/** The tokenizer in the form that `createTokenizer` accepts. Throws ModelError. */
export function ggufTokenizer(file: Pick<GgufFile, "file" | "metadata">): {
  readonly tokenizer: JsonObject;
  readonly config: JsonObject;
} {
  const metadata = new Metadata(file);
  const model = metadata.text(`${prefix}.model`);
  const vocabulary = vocabularyOf(metadata);
  let tokenizer: JsonObject;
  if (model === "gpt2") tokenizer = byteLevel(metadata, vocabulary);
  else if (model === "llama") tokenizer = sentencePiece(metadata, vocabulary);
  else if (model === "gemma4") tokenizer = spelledMerges(metadata, vocabulary);
  else if (model === "bert") tokenizer = wordPieceJson(metadata, pieceVocabulary(metadata, vocabulary));
  else if (model === "t5") tokenizer = unigramJson(metadata, pieceVocabulary(metadata, vocabulary));
  else return metadata.refuse(`${prefix}.model`, "supported: gpt2, llama, gemma4, bert, t5");
  return {
    tokenizer: {
      version: "1.0",
      added_tokens: addedTokens(vocabulary, absorbsSpaces(metadata)),
      ...tokenizer,
    },
    config: { ...specialTokens(metadata, vocabulary.tokens), clean_up_tokenization_spaces: false },
  };
}

function pieceVocabulary(metadata: Metadata, vocabulary: Vocabulary): PieceVocabulary {
  const { tokens, types } = vocabulary;
  const special = (name: string): number | null => specialToken(metadata, name, tokens.length);
  const known = new Set(["bos", "eos", "unknown", "seperator", "padding", "cls", "mask"].map(special));
  return {
    tokens,
    isControl: (token) => types[token] === TokenType.control || known.has(token),
    special,
    around: aroundText(metadata, vocabulary, true),
  };
}

/** The chat templates in the metadata: the usual one, and others by their names. Throws ModelError. */
export function ggufTemplates(file: Pick<GgufFile, "file" | "metadata">): TemplateSet {
  const metadata = new Metadata(file);
  const key = "tokenizer.chat_template";
  const byName = new Map<string, string>();
  if (metadata.has(key)) byName.set("default", metadata.text(key));
  const namesKey = "tokenizer.chat_templates";
  const names = metadata.has(namesKey) ? metadata.texts(namesKey) : [];
  for (const name of new Set(["tool_use", ...names]))
    if (metadata.has(`${key}.${name}`)) byName.set(name, metadata.text(`${key}.${name}`));
  const rerank = byName.get("rerank");
  if (rerank !== undefined) byName.set("default", rerankTemplate(rerank));
  const specialTokensOfFile =
    byName.size === 0 ? {} : specialTokens(metadata, metadata.texts(`${prefix}.tokens`));
  return { path: file.file, byName, specialTokens: specialTokensOfFile };
}

/** Jinja for a reranker's prompt, in which {query} and {document} stand for the two texts. */
function rerankTemplate(prompt: string): string {
  const parts = prompt.split(/\{(query|document)\}/);
  const written = parts.map((part, index) =>
    index % 2 === 0
      ? JSON.stringify(part)
      : `(messages | selectattr("role", "equalto", "${part}") | first).content`,
  );
  return written.map((expression) => `{{ ${expression} }}`).join("");
}

/** Tokens for filling in the middle, under their current and former names. Throws ModelError. */
export function ggufFillIds(file: Pick<GgufFile, "file" | "metadata">): FillIds {
  const metadata = new Metadata(file);
  const count = metadata.texts(`${prefix}.tokens`).length;
  const idOf = (...names: string[]): number | undefined =>
    names.map((name) => specialToken(metadata, name, count)).find((token) => token !== null) ?? undefined;
  const ids = {
    prefix: idOf("fim_pre", "prefix"),
    suffix: idOf("fim_suf", "suffix"),
    middle: idOf("fim_mid", "middle"),
    pad: idOf("fim_pad"),
    repository: idOf("fim_rep"),
    file: idOf("fim_sep"),
  };
  return Object.fromEntries(Object.entries(ids).filter(([, token]) => token !== undefined));
}

function vocabularyOf(metadata: Metadata): Vocabulary {
  const tokens = metadata.texts(`${prefix}.tokens`);
  const seen = new Map<string, number>();
  tokens.forEach((text, token) => {
    const other = seen.get(text);
    if (other !== undefined) {
      const reason = `tokens ${other} and ${token} are both ${JSON.stringify(text)}`;
      metadata.refuse(`${prefix}.tokens`, reason);
    }
    seen.set(text, token);
  });
  const typesKey = `${prefix}.token_type`;
  const listed = metadata.integers(typesKey, tokens.length);
  const types = listed === null ? tokens.map(() => TokenType.normal as number) : Array.from(listed);
  const strange = types.findIndex((type) => type < TokenType.normal || type > TokenType.byte);
  if (strange >= 0) {
    metadata.refuse(typesKey, `token ${strange} has the type ${types[strange]}; types are 1 to 6`);
  }
  const first = specialToken(metadata, "bos", tokens.length);
  const ends = ggufEndTokens(metadata, tokens.length).filter((token) => tokens[token] !== toolResponse);
  for (const token of first === null ? ends : [first, ...ends]) types[token] = TokenType.control;
  const unknown = specialToken(metadata, "unknown", tokens.length);
  if (unknown !== null && types[unknown] === TokenType.normal) types[unknown] = TokenType.unknown;
  return { tokens, types };
}

function specialToken(metadata: Metadata, name: string, count: number): number | null {
  const key = `${prefix}.${name}_token_id`;
  return metadata.has(key) ? metadata.integer(key, 0, count - 1) : null;
}

/** Special tokens by the names of a chat template's variables. */
function specialTokens(metadata: Metadata, tokens: readonly string[]): Record<string, string> {
  const texts: Record<string, string> = {};
  for (const [variable, name] of [
    ["bos_token", "bos"],
    ["eos_token", "eos"],
    ["unk_token", "unknown"],
    ["sep_token", "seperator"], // the format misspells the key
    ["pad_token", "padding"],
    ["mask_token", "mask"],
  ] as const) {
    const token = specialToken(metadata, name, tokens.length);
    if (token !== null) texts[variable] = tokens[token]!;
  }
  return texts;
}

/**
 * True for Phi-3, whose control tokens absorb the spaces after them. The format has no key for that, so the
 * name or the architecture decides.
 */
function absorbsSpaces(metadata: Metadata): boolean {
  const isNamed = /phi-?3/i.test(metadata.text("general.name", ""));
  const isPhi = metadata.text("general.architecture", "") === "phi3";
  return isNamed || (isPhi && metadata.text(`${prefix}.model`) === "llama");
}

/** Control tokens of Phi-3 that do not absorb spaces. */
const besideSpaces = ["<unk>", "<s>", "<|endoftext|>"];

/**
 * Tokens that are split off before merging: control tokens and those that a model's authors added. `absorbs`:
 * they absorb the spaces behind them.
 */
function addedTokens({ tokens, types }: Vocabulary, absorbs: boolean): JsonObject[] {
  const added: JsonObject[] = [];
  tokens.forEach((content, id) => {
    const type = types[id];
    const special = type === TokenType.control || type === TokenType.unknown;
    if (!special && type !== TokenType.userDefined) return;
    const rstrip = absorbs && !besideSpaces.includes(content);
    added.push({ id, content, special, single_word: false, lstrip: false, rstrip, normalized: false });
  });
  return added;
}

/** Ids of the tokens of some types, by spelling. */
function vocabOf({ tokens, types }: Vocabulary, ...wanted: readonly number[]): Record<string, number> {
  return Object.fromEntries(
    tokens.flatMap((text, token) => (wanted.includes(types[token]!) ? [[text, token] as const] : [])),
  );
}

function byteLevel(metadata: Metadata, vocabulary: Vocabulary): JsonObject {
  const key = `${prefix}.pre`;
  const name = metadata.text(key);
  const pre = Object.hasOwn(preTokenizers, name) ? preTokenizers[name]! : null;
  if (pre === null) {
    const known = Object.keys(preTokenizers).join(", ");
    return metadata.refuse(key, `how this pre-tokenizer cuts a text is not known; known: ${known}`);
  }
  return {
    ...preTokenizerJson(pre),
    post_processor: aroundText(metadata, vocabulary, pre.addsBos),
    decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: pre.ignoresMerges,
      vocab: vocabOf(vocabulary, TokenType.normal, TokenType.byte),
      merges: storedMerges(metadata),
    },
  };
}

function storedMerges(metadata: Metadata): string[][] {
  const key = `${prefix}.merges`;
  return metadata.texts(key).map((merge, index) => {
    const cut = merge.indexOf(" ", 1);
    if (cut < 0 || cut === merge.length - 1) {
      metadata.refuse(key, `merge ${index}, ${JSON.stringify(merge)}, is not two parts with a space between`);
    }
    return [merge.slice(0, cut), merge.slice(cut + 1)];
  });
}

/**
 * Merges over SentencePiece's spelling: spaces are ▁ and characters without a token become bytes; the file
 * stores the merges. No token mixes a line break with other text, so texts are split there.
 */
function spelledMerges(metadata: Metadata, vocabulary: Vocabulary): JsonObject {
  const unknown = specialToken(metadata, "unknown", vocabulary.tokens.length);
  return {
    normalizer: { type: "Replace", pattern: { String: " " }, content: space },
    pre_tokenizer: { type: "Split", pattern: { Regex: "[^\\n]+|\\n+" }, behavior: "Isolated", invert: false },
    // Early files of Gemma 4 deny it wrongly.
    post_processor: aroundText(metadata, vocabulary, true, true),
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: space }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
      ],
    },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: unknown === null ? null : vocabulary.tokens[unknown]!,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab: vocabOf(vocabulary, TokenType.normal, TokenType.unknown, TokenType.byte),
      merges: storedMerges(metadata),
    },
  };
}

/**
 * SentencePiece: spaces are ▁. The adjacent pieces whose joined token has the highest score merge first.
 * Characters without a token become bytes.
 */
function sentencePiece(metadata: Metadata, vocabulary: Vocabulary): JsonObject {
  const { tokens, types } = vocabulary;
  const scores =
    metadata.numbers(`${prefix}.scores`, tokens.length) ??
    metadata.refuse(`${prefix}.scores`, "wanted: an array of a score for each token");
  const strange = Array.from(scores).findIndex(Number.isNaN);
  if (strange >= 0) metadata.refuse(`${prefix}.scores`, `the score of token ${strange} is not a number`);
  const addsSpace = metadata.boolean(`${prefix}.add_space_prefix`, true);
  const unknown = specialToken(metadata, "unknown", tokens.length) ?? types.indexOf(TokenType.unknown);
  const hasBytes = types.includes(TokenType.byte);
  if (unknown < 0 && !hasBytes) {
    metadata.refuse(
      `${prefix}.unknown_token_id`,
      "there are no byte tokens to spell other characters either",
    );
  }
  const replace = { type: "Replace", pattern: { String: " " }, content: space };
  const prepend = { type: "Prepend", prepend: space };
  const strip = { type: "Strip", content: " ", start: 1, stop: 0 };
  return {
    normalizer: { type: "Sequence", normalizers: addsSpace ? [prepend, replace] : [replace] },
    pre_tokenizer: null,
    post_processor: aroundText(metadata, vocabulary, true),
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: space }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        ...(addsSpace ? [strip] : []),
      ],
    },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: unknown < 0 ? null : tokens[unknown]!,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: hasBytes,
      ignore_merges: false,
      vocab: vocabOf(vocabulary, TokenType.normal, TokenType.unknown, TokenType.byte),
      merges: mergesOf(vocabulary, scores),
    },
  };
}

/**
 * All pairs of tokens that join to a third, best score first. Among pairs for one token, the longest left
 * part comes first: where pairs compete, that is the one further left.
 */
function mergesOf({ tokens, types }: Vocabulary, scores: ArrayLike<number>): [string, string][] {
  const mergeable = new Set(tokens.filter((_, token) => types[token] === TokenType.normal));
  const ways: { readonly left: string; readonly right: string; readonly score: number }[] = [];
  tokens.forEach((text, token) => {
    if (types[token] !== TokenType.normal) return;
    for (let cut = text.length - 1; cut > 0; cut -= 1) {
      const [left, right] = [text.slice(0, cut), text.slice(cut)];
      if (mergeable.has(left) && mergeable.has(right)) ways.push({ left, right, score: scores[token]! });
    }
  });
  ways.sort((a, b) => b.score - a.score); // stable
  return ways.map(({ left, right }) => [left, right]);
}

/**
 * Post-processor with the tokens around every text; null if there are none. `alwaysBos`: the file's word
 * against a beginning-of-text token does not count.
 */
function aroundText(
  metadata: Metadata,
  vocabulary: Vocabulary,
  addsBos: boolean,
  alwaysBos = false,
): JsonObject | null {
  const tokenFor = (name: "bos" | "eos", fallback: boolean): string | null => {
    const key = `${prefix}.add_${name}_token`;
    const token = specialToken(metadata, name, vocabulary.tokens.length);
    const isAlways = name === "bos" && alwaysBos && token !== null;
    if (!metadata.boolean(key, fallback && token !== null) && !isAlways) return null;
    return token === null
      ? metadata.refuse(key, `there is no ${prefix}.${name}_token_id`)
      : vocabulary.tokens[token]!;
  };
  const before = tokenFor("bos", addsBos);
  const after = tokenFor("eos", false);
  const special = [before, after].filter((text) => text !== null);
  if (special.length === 0) return null;
  const place = (text: string | null) => (text === null ? [] : [{ SpecialToken: { id: text, type_id: 0 } }]);
  const sequence = (id: "A" | "B") => ({ Sequence: { id, type_id: 0 } });
  const hasSeparator = metadata.boolean(`${prefix}.add_sep_token`, false);
  const separator = hasSeparator ? specialToken(metadata, "seperator", vocabulary.tokens.length) : null;
  const between = separator === null ? null : vocabulary.tokens[separator]!;
  if (between !== null && !special.includes(between)) special.push(between);
  const idOf = (text: string): number => vocabulary.tokens.indexOf(text);
  return {
    type: "TemplateProcessing",
    single: [...place(before), sequence("A"), ...place(after)],
    pair: [
      ...[...place(before), sequence("A"), ...place(after)],
      ...[...place(between), sequence("B"), ...place(after)],
    ],
    special_tokens: Object.fromEntries(
      special.map((text) => [text, { id: text, ids: [idOf(text)], tokens: [text] }]),
    ),
  };
}

/**
 * Special tokens for filling in the middle (FIM), which code models place around the text before and after
 * the gap.
 */
import type { TokenId } from "../base/token.ts";
import type { Tokenizer } from "./tokenizer.ts";

export interface FillForm {
  readonly prefix: TokenId;
  readonly suffix: TokenId;
  /**
   * Token after both texts, before the completion; null: the prefix comes last, and the completion continues
   * it.
   */
  readonly middle: TokenId | null;
  readonly isSuffixFirst: boolean;
  /** Tokens before the name of a repository, and of a file; null: none. */
  readonly repository: TokenId | null;
  readonly file: TokenId | null;
  /** Tokens that end the completion, besides the model's own end tokens. */
  readonly ends: readonly TokenId[];
}

/** Ids that a GGUF file names. */
export type FillIds = Partial<
  Record<"prefix" | "suffix" | "middle" | "pad" | "repository" | "file", TokenId>
>;

interface Spelling {
  readonly prefix: string;
  readonly suffix: string;
  readonly middle: string | null;
  readonly isSuffixFirst?: true;
}

/**
 * Spellings of Qwen, Granite and CodeGemma; StarCoder and older Granite; SantaCoder; Code Llama; DeepSeek;
 * Codestral; GLM; Seed-Coder.
 */
const spellings: readonly Spelling[] = [
  { prefix: "<|fim_prefix|>", suffix: "<|fim_suffix|>", middle: "<|fim_middle|>" },
  { prefix: "<fim_prefix>", suffix: "<fim_suffix>", middle: "<fim_middle>" },
  { prefix: "<fim-prefix>", suffix: "<fim-suffix>", middle: "<fim-middle>" },
  { prefix: "▁<PRE>", suffix: "▁<SUF>", middle: "▁<MID>" },
  { prefix: "<PRE>", suffix: "<SUF>", middle: "<MID>" },
  { prefix: "<｜fim▁begin｜>", suffix: "<｜fim▁hole｜>", middle: "<｜fim▁end｜>" },
  { prefix: "[PREFIX]", suffix: "[SUFFIX]", middle: null, isSuffixFirst: true },
  { prefix: "<|code_prefix|>", suffix: "<|code_suffix|>", middle: "<|code_middle|>" },
  { prefix: "<[fim-prefix]>", suffix: "<[fim-suffix]>", middle: "<[fim-middle]>", isSuffixFirst: true },
];

const repositoryTexts = ["<|repo_name|>", "<repo_name>", "<reponame>"];
const fileTexts = ["<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>"];
const endTexts = [
  ...["<|fim_pad|>", "<fim_pad>", "<fim-pad>", "▁<EOT>", "<EOT>", "<|EOT|>"],
  ...["<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>"],
];

/**
 * FIM tokens of a vocabulary; null if it has none. `ids`: tokens that a GGUF file names, which take
 * precedence over spellings.
 */
export function fillFormOf({ tokenOf }: Pick<Tokenizer, "tokenOf">, ids: FillIds = {}): FillForm | null {
  const first = (texts: readonly string[]): TokenId | null =>
    texts.map((text) => tokenOf(text)).find((token) => token !== null) ?? null;
  const spelled = spellings.find((one) => tokenOf(one.prefix) !== null && tokenOf(one.suffix) !== null);
  const ofText = (text: string | null | undefined): TokenId | null => (text == null ? null : tokenOf(text));
  const prefix = ids.prefix ?? ofText(spelled?.prefix);
  const suffix = ids.suffix ?? ofText(spelled?.suffix);
  const middle = ids.middle ?? ofText(spelled?.middle);
  const endsWithPrefix = spelled !== undefined && spelled.middle === null;
  if (prefix === null || suffix === null || (middle === null && !endsWithPrefix)) return null;
  const repository = ids.repository ?? first(repositoryTexts);
  const file = ids.file ?? first(fileTexts);
  const ends = [prefix, suffix, middle, repository, file, ids.pad ?? null, ...endTexts.map(ofText)];
  return {
    prefix,
    suffix,
    middle,
    isSuffixFirst: spelled?.isSuffixFirst ?? middle === null,
    repository,
    file,
    ends: [...new Set(ends.filter((token) => token !== null))],
  };
}

/** Encoder of a tokenizer.json: split at added tokens, normalize, split to words, and words to pieces. */
import type { TokenId } from "../../base/token.ts";
import { flattened, type JsonObject, TokenizerError } from "../tokenizer-file.ts";
import { type AddedToken, addedSplit } from "./added-tokens.ts";
import { bpe } from "./bpe.ts";
import { normalizerOf } from "./normalizers.ts";
import { splitOf } from "./splits.ts";
import { unigram } from "./unigram.ts";
import { wordPiece } from "./word-piece.ts";

/** Encodes a text without control text. `continues`: it follows preceding tokens. */
export type PieceEncoder = (text: string, continues: boolean) => TokenId[];

/**
 * Encoder of a tokenizer.json. `plain`: added tokens that are ordinary text. `isControl`: true for spellings
 * that no plain text may become. Throws TokenizerError with the name of an unsupported part.
 */
export function pieceEncoder(
  tokenizer: JsonObject,
  plain: readonly AddedToken[],
  isControl: (spelling: string) => boolean,
): PieceEncoder {
  const tokensOf = modelOf(tokenizer.model as JsonObject, isControl);
  const normalize = normalizerOf(tokenizer.normalizer);
  const split = splitOf(tokenizer.pre_tokenizer);
  expectKeptStart(tokenizer);
  const splitRaw = addedSplit(plain.filter(({ normalized }) => !normalized));
  const splitNormal = addedSplit(
    plain
      .filter(({ normalized }) => normalized)
      .map((token) => ({ ...token, content: normalize(token.content) })),
  );
  return (text, continues) => {
    const tokens: TokenId[] = [];
    const add = (parts: readonly (string | TokenId)[], each: (part: string, index: number) => void): void =>
      parts.forEach((part, index) => {
        if (typeof part === "number") tokens.push(part);
        else if (part !== "") each(part, index);
      });
    add(splitRaw(text), (raw, rawIndex) =>
      add(splitNormal(normalize(raw)), (normal, index) => {
        const atStart = !continues && rawIndex === 0 && index === 0;
        const words = split({ texts: [normal], atStart }).texts;
        for (const token of tokensOf(words.filter((word) => word !== ""))) tokens.push(token);
      }),
    );
    return tokens;
  };
}

function modelOf(
  model: JsonObject,
  isControl: (spelling: string) => boolean,
): (words: readonly string[]) => readonly TokenId[] {
  const usual = Array.isArray(model.vocab) ? "Unigram" : model.merges === undefined ? "WordPiece" : "BPE";
  const type = model.type ?? usual;
  if (type === "BPE") return bpe(model, isControl);
  const kind = type === "WordPiece" ? wordPiece : type === "Unigram" ? unigram : null;
  if (kind === null)
    throw new TokenizerError(`tokenizer.json: model of type ${JSON.stringify(type)} is not supported`);
  const piecesOf = kind(model, isControl);
  return (words) => words.flatMap(piecesOf);
}

/**
 * Refuses a tokenizer that adds a space before the first word only, after a normalizer that may remove the
 * text's beginning: the package `tokenizers` then adds no space. Throws TokenizerError.
 */
function expectKeptStart(tokenizer: JsonObject): void {
  const isFirst = flattened(tokenizer.pre_tokenizer, "pretokenizers").some(
    ({ type, prepend_scheme: scheme }) => type === "Metaspace" && scheme === "first",
  );
  const remover = flattened(tokenizer.normalizer, "normalizers").find(mayRemoveStart);
  if (isFirst && remover !== undefined)
    throw new TokenizerError(
      `tokenizer.json: Metaspace with prepend_scheme "first" behind the normalizer ${JSON.stringify(remover.type)} is not supported`,
    );
}

function mayRemoveStart(normalizer: JsonObject): boolean {
  switch (normalizer.type) {
    case "Strip":
      return normalizer.strip_left === true;
    case "Replace":
      return normalizer.content === "";
    default:
      return normalizer.type === "StripAccents" || normalizer.type === "BertNormalizer";
  }
}

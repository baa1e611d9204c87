/** Encoders of WordPiece and Unigram tokenizers: normalize, split to words, and words to pieces. */
import type { TokenId } from "../../base/token.ts";
import { type JsonObject, TokenizerError } from "../tokenizer-file.ts";
import { punctuation } from "./characters.ts";
import { normalizerOf } from "./normalizers.ts";
import { unigram } from "./unigram.ts";
import { wordPiece } from "./word-piece.ts";

/** Tokens of a text without control text. `continues`: it continues preceding tokens. */
export type PieceEncoder = (text: string, continues: boolean) => TokenId[];

/** Splits pieces of a text further; `isFirst`: the first piece begins the text. */
type Split = (pieces: readonly string[], isFirst: boolean) => readonly string[];

/**
 * Encoder of a tokenizer.json whose model is WordPiece or Unigram; null for other models. `plain`: added
 * tokens that are ordinary text. `isControl`: true for spellings that no text may become.
 */
export function pieceEncoder(
  tokenizer: JsonObject,
  plain: readonly { readonly id: TokenId; readonly content: string }[],
  isControl: (spelling: string) => boolean,
): PieceEncoder | null {
  const model = tokenizer.model as JsonObject;
  const kinds = { WordPiece: wordPiece, Unigram: unigram } as const;
  const kind = Object.hasOwn(kinds, String(model.type)) ? kinds[model.type as keyof typeof kinds] : null;
  if (kind === null) return null;
  const tokensOf = kind(model, isControl);
  const normalize = normalizerOf(tokenizer.normalizer);
  const split = splitterOf(tokenizer.pre_tokenizer);
  const added = new Map(plain.map(({ id, content }) => [content, id]));
  const addedTexts = plain.length === 0 ? null : new RegExp(`(${plain.map(literal).join("|")})`);

  return (text, continues) => {
    const tokens: TokenId[] = [];
    const parts = addedTexts === null ? [text] : text.split(addedTexts);
    parts.forEach((part, index) => {
      const token = index % 2 === 1 ? added.get(part) : undefined;
      if (token !== undefined) {
        tokens.push(token);
        return;
      }
      const normal = normalize(part);
      if (normal === "") return;
      for (const word of split([normal], index === 0 && !continues))
        for (const piece of word === "" ? [] : tokensOf(word)) tokens.push(piece);
    });
    return tokens;
  };
}

function literal({ content }: { readonly content: string }): string {
  return content.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

const spaces = /\p{White_Space}+/u;

function splitterOf(component: unknown): Split {
  if (component === null || component === undefined) return (pieces) => pieces;
  const splitter = component as JsonObject;
  switch (splitter.type) {
    case "Sequence": {
      const steps = (splitter.pretokenizers as unknown[]).map(splitterOf);
      return (pieces, isFirst) => steps.reduce((parts, step) => step(parts, isFirst), pieces);
    }
    case "BertPreTokenizer":
      return (pieces) =>
        pieces.flatMap((piece) => piece.split(spaces)).flatMap((word) => word.split(punctuation));
    case "WhitespaceSplit":
      return (pieces) => pieces.flatMap((piece) => piece.split(spaces)).filter((word) => word !== "");
    case "Metaspace":
      return metaspace(splitter);
    default:
      throw new TokenizerError(
        `tokenizer.json: pre-tokenizer ${JSON.stringify(splitter.type)} is not supported with this model`,
      );
  }
}

/** Spaces become visible, and words begin with them. */
function metaspace(options: JsonObject): Split {
  const mark = String(options.replacement ?? "▁");
  const usual = options.add_prefix_space === false ? "never" : "always";
  const scheme = options.prepend_scheme ?? usual;
  const words = new RegExp(`(?=${literal({ content: mark })})`, "u");
  return (pieces, isFirst) =>
    pieces.flatMap((piece, index) => {
      const marked = piece.replaceAll(" ", mark);
      const begins = scheme === "always" || (scheme === "first" && isFirst && index === 0);
      const whole = begins && !marked.startsWith(mark) ? mark + marked : marked;
      return options.split === false ? [whole] : whole.split(words);
    });
}

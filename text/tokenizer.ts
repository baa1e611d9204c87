import type { TokenId } from "../base/token.ts";
import { ControlTexts, type RenderedPrompt, restore } from "./control-text.ts";
import type { AddedToken } from "./pieces/added-tokens.ts";
import { pieceEncoder } from "./pieces/piece-encoder.ts";
import { postProcessorOf, type TokenPair } from "./post-processor.ts";
import { specialTokensOf } from "./template-source.ts";
import { encodeBound, type JsonObject, naming, TokenizerError, tokenBytesOf } from "./tokenizer-file.ts";
import { readTokenizerFiles } from "./tokenizer-folder.ts";

export interface EncodeOptions {
  /**
   * True to add the tokenizer's special tokens around the text, for most models a beginning-of-text token.
   */
  readonly addSpecialTokens: boolean;
  /**
   * True to turn control text such as <|im_end|> into its token. Only for texts that are entirely the
   * caller's own prompt.
   */
  readonly parseControlText?: boolean;
  /** Stand-ins in the text for control text that must stay text: see `RenderedPrompt`. */
  readonly standIns?: RenderedPrompt["standIns"];
  /** True if the text continues preceding tokens and so begins in the middle of a word or a line. */
  readonly continues?: boolean;
}

/**
 * Tokenizer of a Hugging Face folder. Splits off control text itself instead of leaving that to the library,
 * so that the caller decides when it counts. Converts ids to bytes, not strings, so that streams decode
 * exactly.
 */
export interface Tokenizer {
  /** The highest id plus one. The model's vocabulary may be padded beyond it. */
  readonly vocabSize: number;
  /**
   * Texts of the control tokens: added tokens that are "special", or spelled like it. Plain text never yields
   * them.
   */
  readonly controlTexts: ControlTexts;
  /**
   * Encodes a text. The cost is linear in the length, but superlinear within a single enormous word. Long
   * texts belong on the tokenizer's thread.
   */
  encode(text: string, options: EncodeOptions): TokenId[];
  /** Tokens of a pair of texts, from the tokens of each without special tokens. */
  pair(first: readonly TokenId[], second: readonly TokenId[]): TokenPair;
  /** Tokens of a rendered chat template, which writes its own beginning-of-text token. */
  encodeRendered(rendered: RenderedPrompt): TokenId[];
  /** Text of tokens as from transformers' `decode` (without clean-up of spaces). */
  decode(tokens: readonly TokenId[], options: { readonly skipSpecialTokens: boolean }): string;
  /** UTF-8 bytes of a token, possibly a part of a scalar. Empty for unused ids. Read only. */
  bytesOf(token: TokenId): Uint8Array;
  /** Text of a token; null if its bytes are not whole characters. */
  textOf(token: TokenId): string | null;
  /** True for a "special" added token, which `skipSpecialTokens` hides. */
  isControl(token: TokenId): boolean;
  /** True for a token that is split off before the rest of a text is tokenised, control token or not. */
  isAdded(token: TokenId): boolean;
  /** The vocabulary's own spelling ("Ġthe", "▁the", "<0x0A>"); null for unused ids. */
  spellingOf(token: TokenId): string | null;
  /** The token with this spelling; null for none. */
  tokenOf(spelling: string): TokenId | null;
  /** The tokenizer's own end-of-text token; null for none. */
  readonly endToken: TokenId | null;
  /** Lower bound on the tokens of any text of this many bytes; cheap, for early refusal. */
  tokensAtLeast(textBytes: number): number;
}

/** Reads the tokenizer of a model folder. Throws TokenizerError. */
export function loadTokenizer(folder: string): Tokenizer {
  const { file, tokenizer, config } = readTokenizerFiles(folder);
  return triedTokenizer(file, () => createTokenizer(tokenizer, config));
}

/** Texts of many kinds to encode once: the library reports some errors of a file only when it encodes. */
const trialTexts = ["", "Words, 12 numbers\n\tand  spaces.", "é ñ 漢字 🙂", "it's <|odd|> ▁"];

/** Makes a tokenizer and tries it out. Throws TokenizerError with the file's name for any error. */
export function triedTokenizer(file: string, make: () => Tokenizer): Tokenizer {
  return naming(file, () => {
    const tokenizer = make();
    for (const text of trialTexts) {
      const tokens = tokenizer.encode(text, { addSpecialTokens: true, parseControlText: true });
      const isWhole = tokens.every((id) => Number.isInteger(id) && id >= 0 && id < tokenizer.vocabSize);
      if (!isWhole) throw new Error(`it makes tokens of ${JSON.stringify(text)} that are none of its own`);
      tokenizer.decode(tokens, { skipSpecialTokens: false });
    }
    return tokenizer;
  });
}

export function createTokenizer(tokenizer: JsonObject, config: JsonObject): Tokenizer {
  const added = addedTokensOf(tokenizer, config);
  const control = new Map(added.filter(isControlText).map((token) => [token.content, token]));
  const controlIds = new Set(added.filter((token) => token.special).map((token) => token.id));
  const addedIds = new Set(added.map((token) => token.id));
  for (const { content, singleWord } of control.values())
    if (singleWord)
      throw new TokenizerError(
        `tokenizer.json: control token ${JSON.stringify(content)} counts as a word alone (single_word), which is not supported`,
      );
  const controlTexts = new ControlTexts([...control.keys()]);
  const around = postProcessorOf(tokenizer.post_processor);
  const table = tokenBytesOf(tokenizer, added);
  const bound = encodeBound(tokenizer, table, added);
  const plainTokens = added.filter(({ content }) => !control.has(content));
  const pieces = pieceEncoder(tokenizer, plainTokens, (spelling) => control.has(spelling));
  let spelt: ReadonlyMap<string, TokenId> | null = null;

  const encodePlain = (text: string, isStart: boolean): TokenId[] =>
    text.length === 0 ? [] : pieces(text, !isStart);

  const encodeCut = (text: string, standIns: ReadonlyMap<string, string>, continues = false): TokenId[] => {
    const pieces = controlTexts.split(text);
    const ids: TokenId[] = [];
    pieces.forEach((piece, index) => {
      if (piece.kind === "control") {
        ids.push(control.get(piece.text)!.id);
        return;
      }
      const before = pieces[index - 1];
      const after = pieces[index + 1];
      let plain = restore(piece.text, standIns);
      if (before !== undefined && control.get(before.text)!.rstrip) plain = plain.trimStart();
      if (after !== undefined && control.get(after.text)!.lstrip) plain = plain.trimEnd();
      for (const id of encodePlain(plain.toWellFormed(), index === 0 && !continues)) ids.push(id);
    });
    return ids;
  };

  /** Cache of bytes by token: answers with log probabilities repeat the same few tokens. */
  const views = new Array<Uint8Array | undefined>(table.vocabSize).fill(undefined);
  const bytesOf = (token: TokenId): Uint8Array => {
    if (!(token >= 0 && token < table.vocabSize)) return noBytes;
    views[token] ??= table.bytes.subarray(table.offsets[token], table.offsets[token + 1]);
    return views[token];
  };

  /** Cache of texts by token. */
  const texts = new Array<string | null | undefined>(table.vocabSize).fill(undefined);
  const textOf = (token: TokenId): string | null => {
    const known = texts[token];
    if (known !== undefined) return known;
    const text = wholeText(bytesOf(token));
    if (token >= 0 && token < texts.length) texts[token] = text;
    return text;
  };

  const tokenOf = (spelling: string): TokenId | null => {
    spelt ??= new Map(table.spellings.flatMap((text, id) => (text === undefined ? [] : [[text, id]])));
    return control.get(spelling)?.id ?? spelt.get(spelling) ?? null;
  };
  const end = specialTokensOf(config).eos_token;
  return {
    vocabSize: table.vocabSize,
    controlTexts,
    endToken: end === undefined ? null : tokenOf(end),
    encode(text, { addSpecialTokens, parseControlText = false, standIns, continues = false }) {
      const ids = parseControlText
        ? encodeCut(text, standIns ?? new Map(), continues)
        : encodePlain(text.toWellFormed(), !continues);
      return addSpecialTokens ? [...around.before, ...ids, ...around.after] : ids;
    },
    encodeRendered: (rendered) => encodeCut(rendered.text, rendered.standIns),
    decode(tokens, { skipSpecialTokens }) {
      const shown = skipSpecialTokens ? tokens.filter((token) => !controlIds.has(token)) : tokens;
      const parts = shown.map(bytesOf);
      const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(concatenate(parts));
      return table.dropsFirstSpace && text.startsWith(" ") ? text.slice(1) : text;
    },
    bytesOf,
    textOf,
    isControl: (token) => controlIds.has(token),
    isAdded: (token) => addedIds.has(token),
    spellingOf: (token) => table.spellings[token] ?? null,
    tokenOf,
    pair: around.pair,
    tokensAtLeast: (textBytes) => Math.ceil(textBytes / bound.bytesPerTokenMax),
  };
}

const noBytes = new Uint8Array(0);
const wholeDecoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function wholeText(bytes: Uint8Array): string | null {
  try {
    return wholeDecoder.decode(bytes);
  } catch {
    return null;
  }
}

/** Added tokens of tokenizer.json, and those that only tokenizer_config.json declares. */
function addedTokensOf(tokenizer: JsonObject, config: JsonObject): AddedToken[] {
  const byId = new Map<number, AddedToken>();
  const add = (id: number, token: JsonObject): void => {
    if (byId.has(id) || typeof token.content !== "string" || token.content === "") return;
    const special = token.special === true;
    const singleWord = token.single_word === true;
    byId.set(id, {
      id,
      content: token.content,
      special,
      lstrip: token.lstrip === true,
      rstrip: token.rstrip === true,
      normalized: typeof token.normalized === "boolean" ? token.normalized : !special,
      singleWord,
    });
  };
  for (const token of (tokenizer.added_tokens ?? []) as JsonObject[]) add(Number(token.id), token);
  for (const [id, token] of Object.entries(
    (config.added_tokens_decoder ?? {}) as Record<string, JsonObject>,
  )) {
    add(Number(id), token);
  }
  return [...byId.values()];
}

/**
 * True for tokens that are "special" or spelled unlike any text, with which some models delimit turns:
 * <|user|>, <｜User｜>. Others, such as <think>, are ordinary text of one token.
 */
function isControlText({ special, content }: AddedToken): boolean {
  return special || /^<[|｜][^<>]+[|｜]>$/.test(content);
}

function concatenate(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    all.set(part, offset);
    offset += part.length;
  }
  return all;
}

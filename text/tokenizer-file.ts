/** Contents of tokenizer.json in the forms that the tokenizer needs. Unknown shapes are refused by name. */

export type JsonObject = Readonly<Record<string, unknown>>;

/** Error of an unusable tokenizer. The sentence names the faulty part of the file. */
export class TokenizerError extends Error {
  override readonly name = "TokenizerError";
}

/** Result of reading a file's contents. Any error becomes a TokenizerError that names the file. */
export function naming<T>(file: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    const { message } = error as Error;
    if (error instanceof TokenizerError && message.includes(file)) throw error;
    if (error instanceof TypeError)
      throw new TokenizerError(`${file}: a part of it is missing, or is not what a tokenizer has there`);
    throw new TokenizerError(`${file}: ${message.replace(/^tokenizer\.json: /, "")}`);
  }
}

/** UTF-8 bytes of all tokens in one array: token i is bytes[offsets[i] … offsets[i + 1]). */
export interface TokenTable {
  /** The highest id plus one. */
  readonly vocabSize: number;
  readonly bytes: Uint8Array;
  /** vocabSize + 1 entries. */
  readonly offsets: Uint32Array;
  /** The vocabulary's own spellings; undefined for unused ids. */
  readonly spellings: readonly (string | undefined)[];
  /** True if `decode` of a whole text drops one leading space (added by SentencePiece). */
  readonly dropsFirstSpace: boolean;
}

/**
 * Reads the vocabulary. Spellings are byte-level (each byte a printable character) or SentencePiece (▁,
 * <0xNN>).
 */
export function tokenBytesOf(
  tokenizer: JsonObject,
  added: readonly { readonly id: number; readonly content: string }[],
): TokenTable {
  const decoder = decoderOf(tokenizer.decoder);
  const spellings = vocabularyOf(tokenizer.model);
  const addedIds = new Set(added.map((token) => token.id));
  for (const { id, content } of added) {
    if (!Number.isInteger(id) || id < 0 || id >= 2 ** 24) {
      throw new TokenizerError(`tokenizer.json: added token ${JSON.stringify(content)} has the id ${id}`);
    }
    spellings[id] = content;
  }
  const vocabSize = spellings.length;
  const utf8 = new TextEncoder();
  const pieces = Array.from(spellings, (spelling, id) => {
    if (spelling === undefined) return new Uint8Array(0);
    return addedIds.has(id) ? utf8.encode(spelling) : decoder.bytesOf(spelling, utf8);
  });
  const offsets = new Uint32Array(vocabSize + 1);
  pieces.forEach((piece, id) => {
    offsets[id + 1] = offsets[id]! + piece.length;
  });
  const bytes = new Uint8Array(offsets[vocabSize]!);
  pieces.forEach((piece, id) => {
    bytes.set(piece, offsets[id]);
  });
  return { vocabSize, bytes, offsets, spellings, dropsFirstSpace: decoder.dropsFirstSpace };
}

function vocabularyOf(model: unknown): (string | undefined)[] {
  const { type, vocab } = (model ?? {}) as { type?: unknown; vocab?: unknown };
  const spellings: (string | undefined)[] = [];
  if (Array.isArray(vocab)) {
    for (const entry of vocab as [string, number][]) spellings.push(entry[0]); // Unigram: [spelling, score]
  } else if (vocab !== null && typeof vocab === "object") {
    for (const [spelling, id] of Object.entries(vocab as Record<string, number>)) {
      if (!Number.isInteger(id) || id < 0 || id >= 2 ** 24) {
        throw new TokenizerError(`tokenizer.json: token ${JSON.stringify(spelling)} has the id ${id}`);
      }
      spellings[id] = spelling;
    }
  } else {
    throw new TokenizerError(`tokenizer.json: model of type ${JSON.stringify(type)} has no vocabulary`);
  }
  return spellings;
}

interface SpellingDecoder {
  bytesOf(spelling: string, utf8: TextEncoder): Uint8Array;
  readonly dropsFirstSpace: boolean;
}

function decoderOf(decoder: unknown): SpellingDecoder {
  const stages = flattened(decoder, "decoders");
  const types = stages.map((stage) => stage.type);
  if (types.includes("ByteLevel")) return { bytesOf: byteLevelBytes, dropsFirstSpace: false };
  const metaspace = stages.find((stage) => stage.type === "Metaspace");
  if (metaspace !== undefined || types.includes("ByteFallback")) {
    const strip = stages.find((stage) => stage.type === "Strip");
    const prepends =
      metaspace !== undefined && metaspace.prepend_scheme !== "never" && metaspace.add_prefix_space !== false;
    return {
      bytesOf: sentencePieceBytes,
      dropsFirstSpace: prepends || (strip !== undefined && strip.content === " " && Number(strip.start) > 0),
    };
  }
  const wordPiece = stages.find((stage) => stage.type === "WordPiece");
  if (wordPiece !== undefined) {
    const prefix = String(wordPiece.prefix ?? "##");
    const bytesOf = (spelling: string, utf8: TextEncoder): Uint8Array =>
      utf8.encode(spelling.startsWith(prefix) ? spelling.slice(prefix.length) : ` ${spelling}`);
    return { bytesOf, dropsFirstSpace: true };
  }
  throw new TokenizerError(
    `tokenizer.json: decoder ${JSON.stringify(types)} is not supported (byte-level, SentencePiece and WordPiece are)`,
  );
}

/** A component, or the components of a Sequence, in order. */
export function flattened(component: unknown, field: string): JsonObject[] {
  if (component === null || typeof component !== "object") return [];
  const object = component as JsonObject;
  const inner = object[field];
  return object.type === "Sequence" && Array.isArray(inner)
    ? inner.flatMap((stage) => flattened(stage, field))
    : [object];
}

/**
 * GPT-2's printable characters for bytes: character → byte. Printable Latin-1 stands for itself, the rest
 * starts at U+0100.
 */
export const byteOfCharacter = ((): ReadonlyMap<string, number> => {
  const map = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 0x100; byte++) {
    const isPrintable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte !== 0xad);
    map.set(String.fromCharCode(isPrintable ? byte : next++), byte);
  }
  return map;
})();

/** The same by UTF-16 unit; -1 for others. An array, since vocabularies have a million characters. */
const byteOfUnit = Int16Array.from(
  { length: 0x200 },
  (_, unit) => byteOfCharacter.get(String.fromCharCode(unit)) ?? -1,
);

function byteLevelBytes(spelling: string, utf8: TextEncoder): Uint8Array {
  const bytes = new Uint8Array(spelling.length);
  for (let at = 0; at < spelling.length; at++) {
    const byte = byteOfUnit[spelling.charCodeAt(at)] ?? -1;
    if (byte < 0) return utf8.encode(spelling);
    bytes[at] = byte;
  }
  return bytes;
}

function sentencePieceBytes(spelling: string, utf8: TextEncoder): Uint8Array {
  const byte = /^<0x([0-9A-Fa-f]{2})>$/.exec(spelling);
  return byte === null
    ? utf8.encode(spelling.replaceAll("▁", " "))
    : Uint8Array.of(Number.parseInt(byte[1]!, 16));
}

/** Bytes of text per token at most; Infinity when the tokenizer may drop text. */
export function encodeBound(
  tokenizer: JsonObject,
  table: TokenTable,
  added: readonly { readonly lstrip: boolean; readonly rstrip: boolean }[],
): { readonly bytesPerTokenMax: number } {
  let longest = 1;
  for (let id = 0; id < table.vocabSize; id++) {
    longest = Math.max(longest, table.offsets[id + 1]! - table.offsets[id]!);
  }
  const shrink = flattened(tokenizer.normalizer, "normalizers").reduce(
    (factor, stage) => factor * shrinkOf(stage),
    1,
  );
  const model = tokenizer.model as JsonObject;
  const keepsAll =
    model.fuse_unk !== true || model.byte_fallback === true || model.unk_token == null
      ? flattened(tokenizer.pre_tokenizer, "pretokenizers").every(keepsText)
      : false;
  const strips = added.some((token) => token.lstrip || token.rstrip);
  return { bytesPerTokenMax: keepsAll && !strips ? longest * shrink : Number.POSITIVE_INFINITY };
}

/** Largest factor by which a normalizer can shorten a text in bytes. */
function shrinkOf(normalizer: JsonObject): number {
  switch (normalizer.type) {
    case "Prepend":
      return 1;
    case "NFC":
    case "NFD":
      return 4; // three Hangul letters of 3 bytes compose to one syllable of 3
    case "Replace": {
      const { pattern, content } = normalizer as { pattern?: { String?: string }; content?: string };
      const isLonger =
        pattern?.String !== undefined &&
        Buffer.byteLength(content ?? "") >= Buffer.byteLength(pattern.String);
      return isLonger ? 1 : Number.POSITIVE_INFINITY;
    }
    default:
      return Number.POSITIVE_INFINITY;
  }
}

function keepsText(preTokenizer: JsonObject): boolean {
  switch (preTokenizer.type) {
    case "ByteLevel":
    case "Metaspace":
    case "Digits":
      return true;
    case "Split":
      return preTokenizer.behavior !== "Removed" && preTokenizer.invert !== true;
    default:
      return false;
  }
}

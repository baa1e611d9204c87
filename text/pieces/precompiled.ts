/**
 * SentencePiece's compiled normalization: a trie of replaced texts (Darts' double array) and the texts that
 * replace them.
 */
import { TokenizerError } from "../tokenizer-file.ts";

/** Replaced texts are at most this long; longer graphemes are replaced by characters. */
const graphemeBytesMax = 6;

/** Stretches that hold all graphemes but those of one printable ASCII character. */
const besideOthers = /(?:[ -~]?[^ -~])+[ -~]?/g;
const graphemes = new Intl.Segmenter("und", { granularity: "grapheme" });
const utf8 = new TextEncoder();

/** Makes a normalizer of the map in base64 of a tokenizer.json. */
export function precompiledNormalizer(charsmap: string): (text: string) => string {
  const bytes = Buffer.from(charsmap, "base64");
  if (bytes.length === 0) return (text) => text;
  const trieBytes = bytes.length < 4 ? 0 : bytes.readUInt32LE(0);
  if (trieBytes === 0 || trieBytes % 4 !== 0 || 4 + trieBytes > bytes.length)
    throw new TokenizerError("tokenizer.json: precompiled_charsmap has no trie");
  const units = Uint32Array.from({ length: trieBytes / 4 }, (_, i) => bytes.readUInt32LE(4 + 4 * i));
  const texts = bytes.subarray(4 + trieBytes);
  const known = new Map<string, string | null>();

  const replaced = (chunk: string): string | null => {
    const before = known.get(chunk);
    if (before !== undefined) return before;
    const at = firstMatch(units, utf8.encode(chunk));
    const end = at === null ? -1 : texts.indexOf(0, at);
    const text = at === null ? null : texts.toString("utf8", at, end < 0 ? texts.length : end);
    if (known.size < 1 << 14) known.set(chunk, text);
    return text;
  };
  const replacing = (grapheme: string): string => {
    const whole = Buffer.byteLength(grapheme) < graphemeBytesMax ? replaced(grapheme) : null;
    if (whole !== null) return whole;
    let text = "";
    for (const character of grapheme) text += replaced(character) ?? character;
    return text;
  };
  const isAsciiPlain = Array.from({ length: 0x5f }, (_, i) => String.fromCharCode(0x20 + i)).every(
    (character) => replaced(character) === null,
  );
  const normal = (stretch: string): string => {
    let result = "";
    for (const { segment } of graphemes.segment(stretch)) result += replacing(segment);
    return result;
  };
  return isAsciiPlain ? (text) => text.replace(besideOthers, normal) : normal;
}

/** Value of the shortest prefix of a key in the trie; null if there is none. */
function firstMatch(units: Uint32Array, key: Uint8Array): number | null {
  let at = offsetOf(units[0]!);
  for (const byte of key) {
    if (byte === 0) return null;
    at ^= byte;
    const unit = units[at];
    if (unit === undefined || (unit & 0x800000ff) >>> 0 !== byte) return null;
    at ^= offsetOf(unit);
    if ((unit >>> 8) & 1) return units[at]! & 0x7fffffff;
  }
  return null;
}

function offsetOf(unit: number): number {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

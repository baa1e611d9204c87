import { byteSet } from "./byte-set.ts";
import type { Regex, Regexes } from "./regexes.ts";

/** Encodings of characters as bytes: plain UTF-8, or the inside of a JSON string. */

/** Inclusive ranges of code points, sorted and disjoint. */
export type CodePoints = readonly (readonly [number, number])[];

/** All Unicode characters, without surrogates. */
export const allCharacters: CodePoints = [
  [0, 0xd7ff],
  [0xe000, 0x10ffff],
];

/** Sorted and merged ranges, without surrogates. */
export function codePoints(ranges: readonly (readonly [number, number])[]): CodePoints {
  const sorted = ranges.filter(([low, high]) => low <= high).sort((a, b) => a[0] - b[0]);
  const merged: [number, number][] = [];
  for (const [low, high] of sorted) {
    const last = merged.at(-1);
    if (last !== undefined && low <= last[1] + 1) last[1] = Math.max(last[1], high);
    else merged.push([low, high]);
  }
  return merged.flatMap(([low, high]): [number, number][] =>
    allCharacters.flatMap(([from, to]): [number, number][] => {
      const part: [number, number] = [Math.max(low, from), Math.min(high, to)];
      return part[0] <= part[1] ? [part] : [];
    }),
  );
}

/** All characters outside the set. */
export function otherThan(set: CodePoints): CodePoints {
  const rest: [number, number][] = [];
  let next = 0;
  for (const [low, high] of set) {
    if (low > next) rest.push([next, low - 1]);
    next = high + 1;
  }
  if (next <= 0x10ffff) rest.push([next, 0x10ffff]);
  return codePoints(rest);
}

/** Characters in both sets. */
export function commonTo(a: CodePoints, b: CodePoints): CodePoints {
  const common: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const low = Math.max(a[i]![0], b[j]![0]);
    const high = Math.min(a[i]![1], b[j]![1]);
    if (low <= high) common.push([low, high]);
    if (a[i]![1] === high) i++;
    else j++;
  }
  return common;
}

/** Encoding of characters and texts as expressions over bytes. */
export interface TextEncoding {
  /** Expression of one character of the set. */
  oneOf(set: CodePoints): Regex;
  /** Expression of any text. */
  readonly anyText: Regex;
  /** Bytes of a text. */
  bytesOf(text: string): Uint8Array;
}

const encoder = new TextEncoder();
/** Most bytes of a character: those of an escape such as \\u001f. */
const CHARACTER_BYTES_MAX = 6;

/** Plain UTF-8. */
export function plainEncoding(regexes: Regexes): TextEncoding {
  const oneOf = remembered((set) => utf8(regexes, set));
  return {
    oneOf,
    anyText: regexes.star(oneOf(allCharacters)),
    bytesOf: (text) => encoder.encode(text),
  };
}

const shortEscapes: Readonly<Record<number, string>> = {
  8: "\\b",
  9: "\\t",
  10: "\\n",
  12: "\\f",
  13: "\\r",
  34: '\\"',
  92: "\\\\",
};

/** Characters that are not escaped inside a JSON string, and the escapes of all others. */
const raw: CodePoints = otherThan([
  [0, 0x1f],
  [34, 34],
  [92, 92],
]);
const escapeTexts = [...Array(32).keys(), 34, 92].map((code) => ({
  code,
  text: encoder.encode(shortEscapes[code] ?? `\\u00${code.toString(16).padStart(2, "0")}`),
}));

/**
 * Inside of a JSON string. Each character has one encoding, that of JSON.stringify. So two strings are equal
 * exactly if their bytes are, and complements are exact.
 */
export function jsonEncoding(regexes: Regexes): TextEncoding {
  const oneOf = remembered((set) => {
    const has = (code: number): boolean => set.some(([low, high]) => low <= code && code <= high);
    const escapes = escapeTexts.flatMap(({ code, text }) => (has(code) ? [text] : []));
    return regexes.alt([utf8(regexes, commonTo(raw, set)), regexes.literals(escapes)]);
  });
  return {
    oneOf,
    anyText: regexes.star(oneOf(allCharacters)),
    bytesOf: (text) => encoder.encode(JSON.stringify(text).slice(1, -1)),
  };
}

/** Rest of an unrestricted JSON string with its closing quote; any character of it; and the quote. */
export function freeStrings(regexes: Regexes): {
  readonly free: Regex;
  readonly character: Regex;
  readonly quote: Regex;
} {
  const { anyText, oneOf } = jsonEncoding(regexes);
  const quote = regexes.bytes([34, 34]);
  return { free: regexes.cat(anyText, quote), character: oneOf(allCharacters), quote };
}

/** Caches the expressions of sets, which are few and recur often. */
function remembered(oneOf: (set: CodePoints) => Regex): (set: CodePoints) => Regex {
  const known = new Map<string, Regex>();
  return (set) => {
    const key = set.join();
    let regex = known.get(key);
    if (regex === undefined) {
      regex = oneOf(set);
      known.set(key, regex);
    }
    return regex;
  };
}

/** Fewest characters that can have this many bytes, in any encoding. */
export function charactersMin(bytes: number): number {
  return Math.ceil(bytes / CHARACTER_BYTES_MAX);
}

/** Expression of one character of the set in UTF-8 (RFC 3629). */
function utf8(regexes: Regexes, set: CodePoints): Regex {
  const parts: Regex[] = [];
  for (const [from, to, length] of lengths) {
    const inside = commonTo(set, [[from, to]]);
    if (inside.length > 0) parts.push(sequences(regexes, inside, length));
  }
  return regexes.alt(parts);
}

const lengths = [
  [0, 0x7f, 1],
  [0x80, 0x7ff, 2],
  [0x800, 0xffff, 3],
  [0x10000, 0x10ffff, 4],
] as const;
const leads = [0, 0, 0xc0, 0xe0, 0xf0];

/** Expression of code points whose sequences have `length` bytes. */
function sequences(regexes: Regexes, set: CodePoints, length: number): Regex {
  if (length === 1) return regexes.bytes(...set);
  const lead = (code: number): number => leads[length]! + (code >>> (6 * (length - 1)));
  return byFirstByte(regexes, set, length, lead);
}

/** Groups code points by their first byte, `first(code)`; bytes with equal rests form one set. */
function byFirstByte(
  regexes: Regexes,
  set: CodePoints,
  length: number,
  first: (code: number) => number,
): Regex {
  const size = 2 ** (6 * (length - 1));
  const rests = new Map<Regex, [number, number][]>();
  const add = (rest: Regex, low: number, high: number): void => {
    const ranges = rests.get(rest);
    if (ranges === undefined) rests.set(rest, [[low, high]]);
    else ranges.push([low, high]);
  };
  const full = continuation(regexes, [[0, size - 1]], length - 1);
  for (const [block, part] of blocks(set, size)) {
    const byte = first(block * size);
    if (part.whole > 1) add(full, byte, byte + part.whole - 1);
    else add(continuation(regexes, part.set, length - 1), byte, byte);
  }
  return regexes.alt([...rests].map(([rest, ranges]) => regexes.cat(regexes.set(byteSet(...ranges)), rest)));
}

/** Expression of the last `length` bytes of sequences, for offsets below 64 ^ length. */
function continuation(regexes: Regexes, set: CodePoints, length: number): Regex {
  if (length === 1) return regexes.bytes(...set.map(([low, high]) => [0x80 + low, 0x80 + high] as const));
  const size = 2 ** (6 * (length - 1));
  const isFull = set.length === 1 && set[0]![0] === 0 && set[0]![1] === size * 64 - 1;
  if (isFull) return regexes.repeat(regexes.bytes([0x80, 0xbf]), length, length);
  return byFirstByte(regexes, set, length, (offset) => 0x80 + Math.floor(offset / size));
}

/**
 * Cuts ranges into blocks of `size`. Yields the offsets in each partly covered block, or the number of whole
 * blocks that follow.
 */
function* blocks(
  set: CodePoints,
  size: number,
): Generator<[number, { readonly set: CodePoints; readonly whole: number }]> {
  const partial = new Map<number, [number, number][]>();
  for (const [low, high] of set) {
    let at = low;
    while (at <= high) {
      const block = Math.floor(at / size);
      const start = block * size;
      const wholeBlocks = at === start ? Math.floor((high + 1 - start) / size) : 0;
      if (wholeBlocks > 1) {
        yield [block, { set: [], whole: wholeBlocks }];
        at = start + wholeBlocks * size;
        continue;
      }
      const end = Math.min(high, start + size - 1);
      const offsets = partial.get(block);
      if (offsets === undefined) partial.set(block, [[at - start, end - start]]);
      else offsets.push([at - start, end - start]);
      at = end + 1;
    }
  }
  for (const [block, offsets] of partial) yield [block, { set: offsets, whole: 0 }];
}

import { type Regex, Regexes } from "../regex/regexes.ts";
import { type CodePoints, codePoints, commonTo, jsonEncoding, otherThan } from "../regex/text.ts";

/** Bytes that never occur inside a JSON string in UTF-8. */
const CODES = [...Array(0x20).keys(), 0xc0, 0xc1, ...Array.from({ length: 11 }, (_, index) => 0xf5 + index)];

/**
 * Partition of all characters: one set for each kind that patterns seldom tell apart, one for each other
 * character.
 */
function setsOfCharacters(): CodePoints[] {
  const range = (low: string, high = low): [number, number] => [low.codePointAt(0)!, high.codePointAt(0)!];
  const alike = ["09", "af", "gz", "AF", "GZ"].map((ends) => codePoints([range(ends[0]!, ends[1])]));
  const spaces = [..."\u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"].map((space) => range(space));
  const white = codePoints([...spaces, range("\u2000", "\u200a")]);
  alike.push(white, commonTo([range("\u0080", "\u{10ffff}")], otherThan(white)));
  const others = otherThan(codePoints(alike.flat())).flatMap(([low, high]) =>
    Array.from({ length: high - low + 1 }, (_, index): CodePoints => [[low + index, low + index]]),
  );
  return [...alike, ...others];
}

/**
 * Encoding of the inside of JSON strings by byte classes. Bytes that patterns seldom tell apart become one
 * byte, as most digits and letters, and bytes of characters beyond ASCII. Many tokens then share a path, so
 * their trie is much smaller.
 */
export class AlikeBytes {
  /** Original bytes that each encoded byte stands for. */
  readonly meanings: readonly Uint8Array[];
  /**
   * Transducer over the bytes of a character, state 0 being between two characters: the output and the next
   * state of each byte.
   */
  readonly #codes: Uint8Array[] = [];
  readonly #after: Uint8Array[] = [];

  constructor() {
    const regexes = new Regexes();
    const { oneOf } = jsonEncoding(regexes);
    // Each character is followed by the number of its set, so derivatives tell bytes apart exactly as the
    // sets do.
    const numbers = setsOfCharacters().map((set, number) => ({ set, end: regexes.bytes([number, number]) }));
    const start = regexes.alt(numbers.map(({ set, end }) => regexes.cat(oneOf(set), end)));
    const ends = new Set(numbers.map(({ end }) => end));
    const places = [start];
    const meanings = Array.from({ length: 256 }, (_, byte) => Uint8Array.of(byte));
    const written = new Map<string, number>();
    for (const place of places) {
      const codes = new Uint8Array(256);
      const after = new Uint8Array(256);
      const alike = new Map<Regex, number[]>();
      for (let byte = 0; byte < 256; byte++) {
        const rest = regexes.derivative(place, byte);
        alike.set(rest, [...(alike.get(rest) ?? []), byte]);
        codes[byte] = byte;
      }
      for (const [rest, bytes] of alike) {
        if (rest === regexes.empty) continue;
        const next = ends.has(rest) ? start : rest;
        if (!places.includes(next)) places.push(next);
        for (const byte of bytes) after[byte] = places.indexOf(next);
        const key = bytes.join();
        const code = bytes.length === 1 ? undefined : (written.get(key) ?? CODES[written.size]);
        if (code === undefined) continue;
        written.set(key, code);
        meanings[code] = Uint8Array.from(bytes);
        for (const byte of bytes) codes[byte] = code;
      }
      this.#codes.push(codes);
      this.#after.push(after);
    }
    this.meanings = meanings;
  }

  /** Encodes a text that is the inside of a string from its first byte on. */
  write(text: Uint8Array): Uint8Array {
    let place = 0;
    return text.map((byte) => {
      const code = this.#codes[place]![byte]!;
      place = this.#after[place]![byte]!;
      return code;
    });
  }
}

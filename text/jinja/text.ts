/** Texts with Python's lengths and positions: in code points, where JavaScript counts UTF-16 units. */
import { whiteSpace } from "./lexer.ts";
import type { Runtime } from "./runtime.ts";

const surrogate = /[\ud800-\udfff]/;
const isSpacePattern = new RegExp(`[${whiteSpace}]`);

export function isSpace(character: string): boolean {
  return isSpacePattern.test(character);
}

export function lengthOf(text: string): number {
  if (!surrogate.test(text)) return text.length;
  let length = 0;
  for (const _ of text) length++;
  return length;
}

/** Code points of a text, each as a text; the text itself if it has no surrogates. */
export function codePoints(text: string): string | string[] {
  return surrogate.test(text) ? [...text] : text;
}

export function sliceText(text: string, from: number, to: number): string {
  const points = codePoints(text);
  return typeof points === "string" ? points.slice(from, to) : points.slice(from, to).join("");
}

/** UTF-16 position of a code point's position. */
export function unitOf(text: string, position: number): number {
  if (!surrogate.test(text)) return Math.min(position, text.length);
  let unit = 0;
  for (let left = position; left > 0 && unit < text.length; left--) {
    unit += text.codePointAt(unit)! > 0xffff ? 2 : 1;
  }
  return unit;
}

/** Bounds of a Python slice with step 1, within a length. */
export function clampBounds(start: number | null, stop: number | null, length: number): [number, number] {
  const clamp = (bound: number): number =>
    bound < 0 ? Math.max(0, bound + length) : Math.min(bound, length);
  return [clamp(start ?? 0), clamp(stop ?? length)];
}

/** UTF-16 positions of `needle`, without overlaps, from the left; at most `countMax`. */
export function placesOf(rt: Runtime, text: string, needle: string, countMax: number): number[] {
  const plain = rt.plain(text);
  const wanted = rt.plain(needle);
  const places: number[] = [];
  for (let at = 0; places.length < countMax; at += wanted.length) {
    at = plain.indexOf(wanted, at);
    if (at < 0) break;
    places.push(at);
  }
  return places;
}

/** The same from the right, in ascending order. */
export function lastPlacesOf(rt: Runtime, text: string, needle: string, countMax: number): number[] {
  const plain = rt.plain(text);
  const wanted = rt.plain(needle);
  const places: number[] = [];
  for (let at = plain.length; places.length < countMax; ) {
    if (at < wanted.length) break;
    at = plain.lastIndexOf(wanted, at - wanted.length);
    if (at < 0) break;
    places.push(at);
  }
  return places.reverse();
}

/** Removes `width` units at each position and returns the pieces around them. */
export function cutAt(text: string, places: readonly number[], width: number): string[] {
  const pieces: string[] = [];
  let from = 0;
  for (const place of places) {
    pieces.push(text.slice(from, place));
    from = place + width;
  }
  pieces.push(text.slice(from));
  return pieces;
}

/** Strips characters from the sides of a text. `chars` null: white space. */
export function strip(
  rt: Runtime,
  text: string,
  chars: string | null,
  sides: "left" | "right" | "both",
): string {
  const set = chars === null ? null : new Set(rt.plain(chars));
  const goes = set === null ? isSpace : (character: string): boolean => set.has(rt.plain(character));
  let from = 0;
  let to = text.length;
  if (sides !== "right") {
    while (from < to) {
      const character = String.fromCodePoint(text.codePointAt(from)!);
      if (!goes(character)) break;
      from += character.length;
    }
  }
  if (sides !== "left") {
    while (to > from) {
      const isPair =
        to - from > 1 && /[\udc00-\udfff]/.test(text[to - 1]!) && /[\ud800-\udbff]/.test(text[to - 2]!);
      const width = isPair ? 2 : 1;
      if (!goes(text.slice(to - width, to))) break;
      to -= width;
    }
  }
  return text.slice(from, to);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: Python ends lines at these.
const lineEnd = /\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]/g;

export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  let from = 0;
  for (const match of text.matchAll(lineEnd)) {
    const end = match.index + match[0].length;
    lines.push(text.slice(from, keepEnds ? end : match.index));
    from = end;
  }
  if (from < text.length) lines.push(text.slice(from));
  return lines;
}

/** Compares two texts by code points. */
export function compareTexts(left: string, right: string): number {
  const length = Math.min(left.length, right.length);
  for (let i = 0; i < length; i++) {
    const a = left.charCodeAt(i);
    const b = right.charCodeAt(i);
    if (a === b) continue;
    const isSurrogateA = (a & 0xf800) === 0xd800;
    const isSurrogateB = (b & 0xf800) === 0xd800;
    if (isSurrogateA !== isSurrogateB) return isSurrogateA ? 1 : -1;
    return a - b;
  }
  return left.length - right.length;
}

const digraphs = /^[\u01c4-\u01cc\u01f1-\u01f3]/;

/** First character in title case, the rest in lower case. */
export function capitalize(text: string): string {
  if (text === "") return "";
  const first = String.fromCodePoint(text.codePointAt(0)!);
  return titleCase(first) + text.slice(first.length).toLowerCase();
}

export function titleCase(character: string): string {
  if (digraphs.test(character)) {
    const code = character.charCodeAt(0);
    const base = code >= 0x1f1 ? 0x1f1 : 0x1c4 + Math.floor((code - 0x1c4) / 3) * 3;
    return String.fromCharCode(base + 1);
  }
  const upper = character.toUpperCase();
  const [first = ""] = upper;
  return first + upper.slice(first.length).toLowerCase();
}

/** Methods of str. */
import { indexOr, textOr, toIndex, toText } from "./convert.ts";
import { fail } from "./errors.ts";
import type { Runtime } from "./runtime.ts";
import { type Given, matcher } from "./signature.ts";
import {
  capitalize,
  clampBounds,
  codePoints,
  cutAt,
  isSpace,
  lastPlacesOf,
  lengthOf,
  placesOf,
  splitLines,
  strip,
  titleCase,
  unitOf,
} from "./text.ts";
import { type Arguments, iterate, Tuple, typeName, type Value } from "./values.ts";

type Method = (rt: Runtime, text: string, args: Arguments) => Value;

const methods = new Map<string, Method>();

export function textMethod(name: string): Method | undefined {
  return methods.get(name);
}

function define(
  names: string,
  parameters: string,
  run: (rt: Runtime, text: string, given: Given, name: string) => Value,
): void {
  for (const name of names.split(" ")) {
    const match = matcher(name, parameters);
    methods.set(name, (rt, text, args) => {
      rt.budget.spend(1 + Math.floor(text.length / 1024));
      const result = run(rt, text, match(args), name);
      if (typeof result === "string" && result !== text) rt.budget.text(result.length);
      return result;
    });
  }
}

define("upper", "", (_, text) => text.toUpperCase());
define("lower", "", (_, text) => text.toLowerCase());
define("casefold", "", (_, text) => text.toUpperCase().toLowerCase().replaceAll("ς", "σ"));
define("capitalize", "", (_, text) => capitalize(text));
define("title", "", (_, text) => {
  let result = "";
  let isInWord = false;
  for (const character of text) {
    const isCased = /\p{Cased}/u.test(character);
    result += isCased ? (isInWord ? character.toLowerCase() : titleCase(character)) : character;
    isInWord = isCased;
  }
  return result;
});
define("swapcase", "", (_, text) =>
  [...text]
    .map((c) => (/\p{Lu}/u.test(c) ? c.toLowerCase() : /\p{Ll}/u.test(c) ? c.toUpperCase() : c))
    .join(""),
);

const sides = { strip: "both", lstrip: "left", rstrip: "right" } as const;
define("strip lstrip rstrip", "/chars?", (rt, text, [chars], name) =>
  strip(rt, text, textOr(chars, null, `${name} arg`), sides[name as keyof typeof sides]),
);

function countOf(value: Value | undefined): number {
  const count = indexOr(value, -1);
  return count < 0 ? Number.POSITIVE_INFINITY : count;
}

function pieces(rt: Runtime, items: string[]): Value {
  rt.budget.spend(items.length);
  return items;
}

define("split rsplit", "sep? maxsplit?", (rt, text, [sep, maxsplit], name) => {
  const separator = textOr(sep, null, "sep");
  const countMax = countOf(maxsplit);
  if (separator === null)
    return pieces(rt, name === "split" ? wordsOf(text, countMax) : lastWordsOf(text, countMax));
  if (separator === "") fail("ValueError", "empty separator");
  const find = name === "split" ? placesOf : lastPlacesOf;
  return pieces(rt, cutAt(text, find(rt, text, separator, countMax), separator.length));
});

/**
 * Words separated by white space; after `countMax` words, the rest without leading white space is the last
 * item.
 */
function wordsOf(text: string, countMax: number): string[] {
  const words: string[] = [];
  let at = 0;
  for (;;) {
    while (at < text.length && isSpace(text[at]!)) at++;
    if (at >= text.length) return words;
    const from = at;
    if (words.length >= countMax) {
      words.push(text.slice(from));
      return words;
    }
    while (at < text.length && !isSpace(text[at]!)) at++;
    words.push(text.slice(from, at));
  }
}

function lastWordsOf(text: string, countMax: number): string[] {
  const words: string[] = [];
  let at = text.length;
  for (;;) {
    while (at > 0 && isSpace(text[at - 1]!)) at--;
    if (at === 0) return words.reverse();
    const to = at;
    if (words.length >= countMax) {
      words.push(text.slice(0, to));
      return words.reverse();
    }
    while (at > 0 && !isSpace(text[at - 1]!)) at--;
    words.push(text.slice(at, to));
  }
}

define("splitlines", "keepends?", (rt, text, [keepEnds]) =>
  pieces(rt, splitLines(text, keepEnds !== undefined && keepEnds !== false && keepEnds !== 0n)),
);

define("partition rpartition", "/sep", (rt, text, [sep], name) => {
  const separator = toText(sep, "sep");
  if (separator === "") fail("ValueError", "empty separator");
  const [place] = (name === "partition" ? placesOf : lastPlacesOf)(rt, text, separator, 1);
  if (place === undefined) return new Tuple(name === "partition" ? [text, "", ""] : ["", "", text]);
  const end = place + separator.length;
  return new Tuple([text.slice(0, place), text.slice(place, end), text.slice(end)]);
});

define("replace", "/old /new /count?", (rt, text, [old, replacement, count]) =>
  replaceAll(
    rt,
    text,
    toText(old, "replace() argument 1"),
    toText(replacement, "replace() argument 2"),
    countOf(count),
  ),
);

export function replaceAll(
  rt: Runtime,
  text: string,
  old: string,
  replacement: string,
  countMax: number,
): string {
  if (old === "") {
    const gaps = ["", ...text].map((_, i) => i);
    rt.budget.text(text.length + gaps.length * replacement.length);
    const points = [...text];
    let result = "";
    for (const [i, gap] of gaps.entries()) result += (gap < countMax ? replacement : "") + (points[i] ?? "");
    return result;
  }
  const places = placesOf(rt, text, old, countMax);
  if (places.length === 0) return text;
  rt.budget.text(text.length + places.length * Math.max(0, replacement.length - old.length));
  return cutAt(text, places, old.length).join(replacement);
}

/** Part of a text between `start` and `end`, and the position where it begins. */
function part(
  text: string,
  start: Value | undefined,
  end: Value | undefined,
): { text: string; offset: number } | null {
  if (start === undefined && end === undefined) return { text, offset: 0 };
  const length = lengthOf(text);
  const given = (value: Value | undefined): number | null =>
    value === undefined || value === null ? null : toIndex(value);
  const startAt = given(start);
  if (startAt !== null && startAt > length) return null;
  const [from, to] = clampBounds(startAt, given(end), length);
  if (to < from) return null;
  return { text: text.slice(unitOf(text, from), unitOf(text, to)), offset: from };
}

define("find rfind index rindex", "/sub /start? /end?", (rt, text, [sub, start, end], name) => {
  const wanted = toText(sub, "must be str");
  const within = part(text, start, end);
  const plain = within === null ? "" : rt.plain(within.text);
  const plainWanted = rt.plain(wanted);
  const unit =
    within === null ? -1 : name.startsWith("r") ? plain.lastIndexOf(plainWanted) : plain.indexOf(plainWanted);
  if (unit >= 0) return BigInt(within!.offset + lengthOf(plain.slice(0, unit)));
  return name.endsWith("find") ? -1n : fail("ValueError", "substring not found");
});

define("count", "/sub /start? /end?", (rt, text, [sub, start, end]) => {
  const wanted = toText(sub, "must be str");
  const within = part(text, start, end);
  if (within === null) return 0n;
  if (wanted === "") return BigInt(lengthOf(within.text) + 1);
  return BigInt(placesOf(rt, within.text, wanted, Number.POSITIVE_INFINITY).length);
});

define("startswith endswith", "/affix /start? /end?", (rt, text, [affix, start, end], name) => {
  const affixes = affix instanceof Tuple ? affix.items : [affix!];
  const within = part(text, start, end);
  const plain = within === null ? null : rt.plain(within.text);
  return affixes.some((item) => {
    const wanted = rt.plain(
      typeof item === "string"
        ? item
        : fail("TypeError", `${name} first arg must be str or a tuple of str, not ${typeName(item)}`),
    );
    return plain !== null && (name === "startswith" ? plain.startsWith(wanted) : plain.endsWith(wanted));
  });
});

define("removeprefix removesuffix", "/affix", (rt, text, [affix], name) => {
  const wanted = rt.plain(toText(affix, `${name}() argument`));
  if (name === "removeprefix") return rt.plain(text).startsWith(wanted) ? text.slice(wanted.length) : text;
  return wanted !== "" && rt.plain(text).endsWith(wanted) ? text.slice(0, -wanted.length) : text;
});

define("join", "/iterable", (rt, text, [iterable]) => {
  const items: string[] = [];
  for (const item of iterate(iterable!)) {
    rt.budget.spend(1);
    items.push(
      typeof item === "string"
        ? item
        : fail("TypeError", `sequence item ${items.length}: expected str instance, ${typeName(item)} found`),
    );
  }
  return joinTexts(rt, text, items);
});

export function joinTexts(rt: Runtime, separator: string, items: readonly string[]): string {
  rt.budget.text(items.reduce((sum, item) => sum + item.length + separator.length, 0));
  return items.join(separator);
}

define("center ljust rjust", "/width /fillchar?", (rt, text, [width, fill], name) => {
  const filler = fill === undefined ? " " : toText(fill, "The fill character");
  if (lengthOf(filler) !== 1) fail("TypeError", "The fill character must be exactly one character long");
  const total = toIndex(width!);
  const missing = total - lengthOf(text);
  if (missing <= 0) return text;
  rt.budget.text(text.length + missing);
  if (name === "ljust") return text + filler.repeat(missing);
  if (name === "rjust") return filler.repeat(missing) + text;
  const left = centerLeft(missing, total);
  return filler.repeat(left) + text + filler.repeat(missing - left);
});

/** Left share of the padding: CPython's rule for odd padding. */
export function centerLeft(missing: number, width: number): number {
  return Math.floor(missing / 2) + (missing & width & 1);
}

define("zfill", "/width", (rt, text, [width]) => {
  const missing = toIndex(width!) - lengthOf(text);
  if (missing <= 0) return text;
  rt.budget.text(text.length + missing);
  const sign = /^[+-]/.test(text) ? text[0]! : "";
  return sign + "0".repeat(missing) + text.slice(sign.length);
});

define("expandtabs", "tabsize?", (rt, text, [tabSize]) => {
  const size = indexOr(tabSize, 8);
  rt.budget.text(text.length + Math.max(0, size) * text.split("\t").length);
  let column = 0;
  let result = "";
  for (const character of text) {
    if (character === "\t") {
      const spaces = size > 0 ? size - (column % size) : 0;
      result += " ".repeat(spaces);
      column += spaces;
    } else {
      result += character;
      column = character === "\n" || character === "\r" ? 0 : column + 1;
    }
  }
  return result;
});

const classes: Readonly<Record<string, RegExp>> = {
  isalpha: /^\p{L}+$/u,
  isdecimal: /^\p{Nd}+$/u,
  isdigit: /^[\p{Nd}²³¹⁰⁴-⁹₀-₉①-⑨⑴-⑼⒈-⒐⓪⓵-⓽⓿❶-❾➀-➈➊-➒]+$/u,
  isnumeric: /^[\p{Nd}\p{Nl}\p{No}〇一二三四五六七八九十百千万億兆零]+$/u,
  isalnum: /^[\p{L}\p{Nd}\p{Nl}\p{No}]+$/u,
  isidentifier: /^[\p{XID_Start}_]\p{XID_Continue}*$/u,
  isascii: /^\p{ASCII}*$/u,
  isprintable: /^(?:[^\p{C}\p{Z}]| )*$/u,
};
for (const [name, pattern] of Object.entries(classes)) define(name, "", (_, text) => pattern.test(text));
define("isspace", "", (_, text) => text !== "" && [...text].every(isSpace));
define("isupper", "", (_, text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text));
define("islower", "", (_, text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text));
define("istitle", "", (_, text) => {
  let isInWord = false;
  let hasWord = false;
  for (const character of text) {
    const isUpper = /[\p{Uppercase}\p{Lt}]/u.test(character);
    const isLower = /\p{Lowercase}/u.test(character);
    if ((isUpper && isInWord) || (isLower && !isInWord)) return false;
    isInWord = isUpper || isLower;
    hasWord ||= isInWord;
  }
  return hasWord;
});

/** Character of a text by position; undefined when out of range. */
export function characterAt(text: string, index: number): string | undefined {
  const points = codePoints(text);
  return points[index < 0 ? index + points.length : index];
}

/** Jinja's filters of texts and numbers, and the table of all filters. */
import { ownAttribute } from "./attributes.ts";
import { defined, indexOr, isTrueOr, textOr, toIndex, toText } from "./convert.ts";
import { fail } from "./errors.ts";
import { percentFormat } from "./format.ts";
import { toJson } from "./json.ts";
import { escapeHtml } from "./markup.ts";
import { fixedText, numeric, readFloat, readInteger, roundFloat, roundInteger, toFloat } from "./numbers.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { sequenceFilters } from "./sequence-filters.ts";
import { definer, type Filter, type Given } from "./signature.ts";
import { capitalize, lengthOf, sliceText, splitLines, strip } from "./text.ts";
import { centerLeft, joinTexts, replaceAll } from "./text-methods.ts";
import { Dict, isTrue, iterate, Markup, sizeOf, Tuple, typeName, Undefined, type Value } from "./values.ts";

export const filters = new Map<string, Filter>(sequenceFilters);

const define = definer(filters);

function defineText(
  name: string,
  parameters: string,
  run: (rt: Runtime, text: string, given: Given) => Value,
): void {
  define(name, parameters, (rt, value, given) => {
    const text = str(rt, value);
    rt.budget.spend(1 + Math.floor(text.length / 1024));
    const result = run(rt, text, given);
    if (typeof result === "string" && result !== text) rt.budget.text(result.length);
    return result;
  });
}

defineText("upper", "", (_, text) => text.toUpperCase());
defineText("lower", "", (_, text) => text.toLowerCase());
defineText("capitalize", "", (_, text) => capitalize(text));
defineText("string", "", (_, text) => text);
defineText("title", "", (_, text) =>
  text
    .split(/([-\s({[<]+)/)
    .map((word) => {
      const [first = ""] = word;
      return first.toUpperCase() + word.slice(first.length).toLowerCase();
    })
    .join(""),
);
defineText("trim", "chars?", (rt, text, [chars]) =>
  strip(rt, text, textOr(chars, null, "strip arg"), "both"),
);
defineText("center", "width?", (rt, text, [width]) => {
  const total = indexOr(width, 80);
  const missing = Math.max(0, total - lengthOf(text));
  rt.budget.text(text.length + missing);
  const left = centerLeft(missing, total);
  return " ".repeat(left) + text + " ".repeat(missing - left);
});
defineText("replace", "old new count?", (rt, text, [old, replacement, count]) => {
  const countMax = indexOr(count, -1);
  return replaceAll(
    rt,
    text,
    str(rt, old!),
    str(rt, replacement!),
    countMax < 0 ? Number.POSITIVE_INFINITY : countMax,
  );
});
defineText("wordcount", "", (_, text) => BigInt(text.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0));
defineText("striptags", "", (rt, text) => {
  const untagged = without(without(text, "<!--", "-->"), "<", ">");
  return rt.made(untagged.split(/\s+/).filter(Boolean).join(" "));
});

/** The text without all spans from a `start` to the next `end`, both included. */
function without(text: string, start: string, end: string): string {
  let kept = "";
  let from = 0;
  for (;;) {
    const at = text.indexOf(start, from);
    const to = at < 0 ? -1 : text.indexOf(end, at);
    if (to < 0) return kept + text.slice(from);
    kept += text.slice(from, at);
    from = to + end.length;
  }
}

define("safe", "", (rt, value) => new Markup(str(rt, value)));
define("e escape forceescape", "", (rt, value) => {
  const text = escapeHtml(str(rt, value));
  return new Markup(rt.made(text));
});

define("urlencode", "", (rt, value) => {
  if (
    typeof value === "string" ||
    (sizeOf(value) === undefined && numeric(value) !== undefined) ||
    value === null
  )
    return quoteUrl(str(rt, value), "/");
  const pairs =
    value instanceof Dict ? value.entries() : [...iterate(value)].map((pair) => [...iterate(pair)] as const);
  const parts: string[] = [];
  for (const pair of pairs) {
    if (pair.length !== 2) fail("ValueError", `expected pairs, got ${pair.length} values`);
    const [key, part] = pair;
    const quote = (each: Value): string => quoteUrl(str(rt, each), "").replaceAll("%20", "+");
    parts.push(`${quote(key!)}=${quote(part!)}`);
  }
  return joinTexts(rt, "&", parts);
});

function quoteUrl(text: string, kept: string): string {
  const quoted = encodeURIComponent(text).replace(
    /[!'()*]/g,
    (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return kept === "/" ? quoted.replaceAll("%2F", "/") : quoted;
}

define("indent", "width? first? blank?", (rt, value, [width, first, blank]) => {
  const indention =
    typeof width === "string" ? width : " ".repeat(Math.min(1000, Math.max(0, indexOr(width, 4))));
  if (typeof value !== "string") {
    defined(value);
    return fail("TypeError", `unsupported operand type(s) for +=: '${typeName(value)}' and 'str'`);
  }
  // As in Jinja: the added line break preserves one at the end of the text.
  const lines = splitLines(`${value}\n`);
  rt.budget.text(value.length + lines.length * (indention.length + 1));
  const isBlankIndented = isTrueOr(blank, false);
  const [head = "", ...rest] = lines;
  const indented = rest.map((line) => (line !== "" || isBlankIndented ? indention + line : line));
  return (isTrueOr(first, false) ? indention : "") + [head, ...indented].join("\n");
});

define("truncate", "length? killwords? end? leeway?", (_, value, [length, killWords, end, leeway]) => {
  const lengthMax = indexOr(length, 255);
  const ending = textOr(end, "...", "end")!;
  const slack = indexOr(leeway, 5);
  const endLength = lengthOf(ending);
  if (lengthMax < endLength) fail("AssertionError", `expected length >= ${endLength}, got ${lengthMax}`);
  if (slack < 0) fail("AssertionError", `expected leeway >= 0, got ${slack}`);
  const size = typeof value === "string" ? lengthOf(value) : sizeOf(value);
  if (size !== undefined && size <= lengthMax + slack) return value;
  const text = toText(value, "what is truncated");
  const cut = sliceText(text, 0, lengthMax - endLength);
  if (isTrueOr(killWords, false)) return cut + ending;
  const space = cut.lastIndexOf(" ");
  return (space < 0 ? cut : cut.slice(0, space)) + ending;
});

filters.set("format", (rt, value, { positional, named }) => {
  if (positional.length > 0 && named.size > 0)
    fail("FilterArgumentError", "can't handle positional and keyword arguments at the same time");
  const mapping = new Dict();
  for (const [key, each] of named) mapping.set(key, each);
  return rt.made(percentFormat(rt, str(rt, value), named.size > 0 ? mapping : new Tuple(positional)));
});

define("default d", "default_value? boolean?", (_, value, [fallback, boolean]) => {
  const isMissing = value instanceof Undefined || (isTrueOr(boolean, false) && !isTrue(value));
  return isMissing ? (fallback === undefined ? "" : fallback) : value;
});

define("tojson", "ensure_ascii? indent? separators? sort_keys?", (rt, value, given) =>
  toJson(rt, value, given),
);

define("int", "default? base?", (_, value, [fallback = 0n, base]) => {
  if (value instanceof Undefined) value.raise();
  const number =
    typeof value === "string" ? (readInteger(value, indexOr(base, 10)) ?? readFloat(value)) : numeric(value);
  if (typeof number === "bigint") return number;
  if (number === undefined || Number.isNaN(number)) return fallback;
  if (!Number.isFinite(number)) {
    return typeof value === "string"
      ? fallback
      : fail("OverflowError", "cannot convert float infinity to integer");
  }
  return BigInt(Math.trunc(number));
});

define("float", "default?", (_, value, [fallback = 0]) => {
  if (value instanceof Undefined) value.raise();
  const number = typeof value === "string" ? readFloat(value) : numeric(value);
  return number === undefined ? fallback : toFloat(number);
});

define("abs", "", (_, value) => {
  const number = numeric(defined(value));
  if (number === undefined) return fail("TypeError", `bad operand type for abs(): '${typeName(value)}'`);
  return typeof number === "bigint" ? (number < 0n ? -number : number) : Math.abs(number);
});

define("round", "precision? method?", (_, value, [precision, method = "common"]) => {
  if (method !== "common" && method !== "ceil" && method !== "floor")
    fail("FilterArgumentError", "method must be common, ceil or floor");
  const places = precision === undefined ? 0 : toIndex(precision);
  const number = numeric(defined(value));
  if (number === undefined)
    return fail("TypeError", `type ${typeName(value)} doesn't define __round__ method`);
  if (method === "common")
    return typeof number === "bigint" ? roundInteger(number, places) : roundFloat(number, places);
  const scale = 10 ** places;
  const scaled = toFloat(number) * scale;
  if (!Number.isFinite(scaled)) fail("OverflowError", "cannot convert float infinity to integer");
  return (method === "ceil" ? Math.ceil(scaled) : Math.floor(scaled)) / scale;
});

define("filesizeformat", "binary?", (rt, value, [binary]) => {
  const bytes = typeof value === "string" ? readFloat(value) : numeric(defined(value));
  if (bytes === undefined) return fail("ValueError", `could not convert to float: '${str(rt, value)}'`);
  const size = toFloat(bytes);
  const isBinary = isTrueOr(binary, false);
  const base = isBinary ? 1024 : 1000;
  if (size === 1) return "1 Byte";
  if (size < base) return `${Math.trunc(size)} Bytes`;
  const prefixes = [..."kMGTPEZY"].map((letter) => (isBinary ? `${letter.toUpperCase()}iB` : `${letter}B`));
  const index = prefixes.findIndex((_, i) => size < base ** (i + 2));
  const chosen = index < 0 ? prefixes.length - 1 : index;
  return `${fixedText((base * size) / base ** (chosen + 2), 1)} ${prefixes[chosen]}`;
});

define("attr", "name", (rt, value, [name]) => ownAttribute(rt, value, toText(name, "attribute name")));

for (const name of ["urlize", "xmlattr", "wordwrap", "pprint", "random"]) {
  filters.set(name, () => fail("LimitError", `the filter ${name} is not supported in chat templates`));
}

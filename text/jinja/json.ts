/**
 * JSON as Python's `json` reads and writes it: 1.0 stays a float, keys keep their order, numbers have
 * Python's form.
 */
import { Budget, defaultLimits } from "./budget.ts";
import { isTrueOr, toIndex } from "./convert.ts";
import { fail } from "./errors.ts";
import { digitsMax, floatText } from "./numbers.ts";
import { isOrdered } from "./operators.ts";
import { integerText } from "./print.ts";
import { Runtime } from "./runtime.ts";
import type { Given } from "./signature.ts";
import { Dict, itemsOf, Markup, typeName, type Value } from "./values.ts";

interface Format {
  readonly isAscii: boolean;
  readonly indent: string | null;
  readonly itemSeparator: string;
  readonly keySeparator: string;
  readonly sortsKeys: boolean;
}

/** Filter `tojson(ensure_ascii, indent, separators, sort_keys)` of transformers. */
export function toJson(rt: Runtime, value: Value, [ascii, indent, separators, sortKeys]: Given): string {
  const indentText =
    indent === undefined || indent === null
      ? null
      : typeof indent === "string"
        ? indent
        : " ".repeat(Math.min(Math.max(0, toIndex(indent)), 1000));
  const pair = separators === undefined || separators === null ? undefined : itemsOf(separators);
  if (separators !== undefined && separators !== null && pair?.length !== 2)
    fail("ValueError", "separators must be a pair of texts");
  const [itemSeparator = indentText === null ? ", " : ",", keySeparator = ": "] = (pair ?? []) as string[];
  const isAscii = isTrueOr(ascii, false);
  return write(rt, value, "\n", {
    isAscii,
    indent: indentText,
    itemSeparator,
    keySeparator,
    sortsKeys: isTrueOr(sortKeys, false),
  });
}

/** JSON of a JavaScript value, as `tojson` writes it. */
export function jsonText(given: unknown): string {
  return textOfValue(fromJavaScript(given, () => undefined));
}

/** A member of an object, as a text: its JSON, unless it is a text already. */
export interface MemberText {
  readonly name: string;
  readonly isText: boolean;
  readonly text: string;
}

/** Members of a JavaScript object. `jsonOf` returns the source text of values with a known one. */
export function memberTexts(
  given: object,
  jsonOf: (object: object) => string | undefined,
): readonly MemberText[] {
  const dict = fromJavaScript(given, jsonOf) as Dict;
  return [...dict.entries()].map(([key, value]) => {
    const isText = typeof value === "string";
    return { name: key as string, isText, text: isText ? value : textOfValue(value) };
  });
}

function textOfValue(value: Value): string {
  const rt = new Runtime(new Budget(defaultLimits, () => true), new Date(0), new Map());
  return toJson(rt, value, []);
}

/** JSON of a text, as `tojson` writes it. */
export function jsonOfText(text: string): string {
  return quoted(text, { isAscii: false });
}

/** Writes a value. `lineStart`: a line break and the value's indentation. */
function write(rt: Runtime, value: Value, lineStart: string, format: Format): string {
  rt.budget.spend(1);
  if (value === null) return "null";
  switch (typeof value) {
    case "string":
      return rt.made(quoted(value, format));
    case "boolean":
      return value ? "true" : "false";
    case "bigint":
      return integerText(value);
    case "number":
      return jsonFloat(value);
  }
  if (value instanceof Markup) return rt.made(quoted(value.text, format));
  const inner = lineStart + (format.indent ?? "");
  const items = itemsOf(value);
  if (items !== undefined) {
    return bracketed(
      rt,
      "[]",
      items.map((item) => write(rt, item, inner, format)),
      lineStart,
      format,
    );
  }
  if (!(value instanceof Dict))
    return fail("TypeError", `Object of type ${typeName(value)} is not JSON serializable`);
  let entries = [...value.entries()];
  if (format.sortsKeys)
    entries = entries.sort(([a], [b]) => (isOrdered(rt, "<", a, b) ? -1 : isOrdered(rt, "<", b, a) ? 1 : 0));
  const members = entries.map(
    ([key, item]) => quoted(keyText(key), format) + format.keySeparator + write(rt, item, inner, format),
  );
  return bracketed(rt, "{}", members, lineStart, format);
}

function bracketed(
  rt: Runtime,
  brackets: string,
  parts: readonly string[],
  lineStart: string,
  format: Format,
): string {
  const [open = "", close = ""] = brackets;
  if (parts.length === 0) return brackets;
  const isIndented = format.indent !== null;
  const inner = isIndented ? lineStart + format.indent : "";
  const separator = format.itemSeparator + inner;
  rt.budget.text(
    parts.reduce((sum, part) => sum + part.length + separator.length, inner.length + lineStart.length + 2),
  );
  return open + inner + parts.join(separator) + (isIndented ? lineStart : "") + close;
}

function jsonFloat(value: number): string {
  if (Number.isFinite(value)) return floatText(value);
  return Number.isNaN(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

function keyText(key: Value): string {
  if (typeof key === "string") return key;
  if (typeof key === "boolean") return key ? "true" : "false";
  if (key === null) return "null";
  if (typeof key === "bigint") return integerText(key);
  if (typeof key === "number") return jsonFloat(key);
  return fail("TypeError", `keys must be str, int, float, bool or None, not ${typeName(key)}`);
}

const named: Readonly<Record<string, string>> = {
  "\n": "\\n",
  "\r": "\\r",
  "\t": "\\t",
  "\b": "\\b",
  "\f": "\\f",
  '"': '\\"',
  "\\": "\\\\",
};

// biome-ignore lint/suspicious/noControlCharactersInRegex: those are what JSON escapes.
const escaped = /[\x00-\x1f"\\]/g;
const escapedInAscii = /[^\x20-\x7e]|["\\]/g;

function quoted(text: string, { isAscii }: Pick<Format, "isAscii">): string {
  const body = text.replace(
    isAscii ? escapedInAscii : escaped,
    (unit) => named[unit] ?? `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `"${body}"`;
}

const literal = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[[\]{},:]|true|false|null/y;
const space = /[ \t\n\r]*/y;

/**
 * Reads JSON that `JSON.parse` has accepted. Throws JinjaError for an integer with more digits than Python
 * reads.
 */
export function readJson(text: string): Value {
  let at = 0;
  const next = (): string => {
    space.lastIndex = at;
    space.exec(text);
    const start = space.lastIndex;
    if (text[start] === '"') at = stringEnd(text, start);
    else {
      literal.lastIndex = start;
      if (!literal.test(text)) fail("ValueError", `not JSON at ${start}`);
      at = literal.lastIndex;
    }
    return text.slice(start, at);
  };
  const peek = (): string => {
    const from = at;
    const token = next();
    at = from;
    return token;
  };
  const value = (): Value => {
    const token = next();
    if (token === "[") {
      const items: Value[] = [];
      if (peek() === "]") next();
      else
        do items.push(value());
        while (next() === ",");
      return items;
    }
    if (token === "{") {
      const dict = new Dict();
      if (peek() === "}") next();
      else
        do {
          const key = JSON.parse(next()) as string;
          next();
          dict.set(key, value());
        } while (next() === ",");
      return dict;
    }
    if (token[0] === '"') return JSON.parse(token) as string;
    if (token === "null") return null;
    if (token === "true" || token === "false") return token === "true";
    if (/[.eE]/.test(token)) return Number(token);
    if (token.length > digitsMax) fail("ValueError", `an integer may have ${digitsMax} digits at most`);
    return BigInt(token);
  };
  return value();
}

/** Position behind the quote that ends the string, which begins at `start`. */
function stringEnd(text: string, start: number): number {
  for (let at = start + 1; ; at++) {
    const unit = text[at];
    if (unit === "\\") at++;
    else if (unit === '"' || unit === undefined) return at + 1;
  }
}

/**
 * Converts a JavaScript value to a template's. `jsonOf`: an object's JSON source, if known. It preserves 1.0
 * and the order of integer keys, which the object loses.
 */
export function fromJavaScript(given: unknown, jsonOf: (object: object) => string | undefined): Value {
  switch (typeof given) {
    case "string":
    case "boolean":
    case "bigint":
      return given;
    case "number":
      return Number.isInteger(given) && !Object.is(given, -0) ? BigInt(given) : given;
    case "object": {
      if (given === null) return null;
      const json = jsonOf(given);
      if (json !== undefined) return readJson(json);
      if (Array.isArray(given)) return given.map((member) => fromJavaScript(member, jsonOf));
      const dict = new Dict();
      for (const [key, member] of Object.entries(given)) {
        if (member !== undefined) dict.set(key, fromJavaScript(member, jsonOf));
      }
      return dict;
    }
    default:
      return fail("TypeError", `a template cannot use a ${typeof given}`);
  }
}

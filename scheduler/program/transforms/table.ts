/** Table of all transforms. A transform for text applies to each item of a list. */
import type { Transformed, Value } from "../spec.ts";
import { parseDate } from "./date.ts";
import { jsonAt, parseJsonPath } from "./json-path.ts";
import { compileRegex, type Regex, regexLimits } from "./regex.ts";
import { searchRegex } from "./regex-search.ts";
import type { TextTools } from "./value.ts";
import { byteLength, failed, ok, valueLimits } from "./value.ts";

/** Transform of the table. */
export interface TransformRow {
  /** Error in an argument; null: none. */
  problem(argument: unknown): string | null;
  /** True if it also receives failures, not only values. */
  readonly mends: boolean;
  /** Applies the transform. Only rows with `mends` receive failures. */
  apply(given: Transformed, argument: unknown, tools: TextTools): Transformed;
}

/** Longest text argument, in bytes. */
const argumentBytesMax = 65_536;
const enumValuesMax = 1024;

/** Transforms by the name that clients write. */
export const transforms: Readonly<Record<string, TransformRow>> = {
  /** Removes white space at both ends. */
  strip: onText(none, (text) => ok(text.trim())),
  /** Converts to lower case. */
  lower: onText(none, (text) => ok(text.toLowerCase())),
  /** Extracts a group of the first match: the first group, or the whole match of a pattern without groups. */
  regex: onText(regexArgument, (text, regex) => {
    const search = searchRegex(regex, text);
    if (search.kind === "tooLong") return failed(`the search took more than ${regexLimits.stepsMax} steps`);
    if (search.kind === "none") return failed("the pattern matches nowhere");
    return search.text === null ? failed("the pattern matches, but not its group") : ok(search.text);
  }),
  /** Extracts the value at a JSON path: text as it is, numbers and objects as JSON, an array as a list. */
  json: onOne(jsonArgument, (text, path) => jsonAt(text, path)),
  /** Splits at a separator. */
  split: onOne(textArgument, (text, separator) => {
    const parts = text.split(separator, valueLimits.itemsMax + 1);
    return parts.length <= valueLimits.itemsMax
      ? ok(parts)
      : failed(`more than ${valueLimits.itemsMax} parts`);
  }),
  /** Splits into the lines with text, without list markers such as "- " or "2. ". */
  lines: onOne(none, (text) => ok(listedLines(text))),
  /** Picks the item at an index; negative ones count from the end. */
  item: onList(indexArgument, (items, index) => {
    const item = items.at(index);
    return item === undefined ? failed(`there is no item ${index} in a list of ${items.length}`) : ok(item);
  }),
  /** Joins a list with a separator. */
  join: onList(anyTextArgument, (items, separator) => {
    const bytes = byteLength(items.join("")) + byteLength(separator) * Math.max(0, items.length - 1);
    return bytes > valueLimits.bytesMax ? tooLarge(bytes) : ok(items.join(separator));
  }),
  /** Truncates to a number of tokens. */
  truncate: onText(countArgument, (text, tokensMax, tools) => ok(tools.truncate(text, tokensMax))),
  /** Replaces each {{value}} in a template with the text. */
  template: onText(textArgument, (text, template) => {
    const pieces = template.split("{{value}}");
    const bytes = byteLength(pieces.join("")) + (pieces.length - 1) * byteLength(text);
    return bytes > valueLimits.bytesMax ? tooLarge(bytes) : ok(pieces.join(text));
  }),
  /** Replaces an empty value, or the failure of an earlier transform. */
  default: {
    mends: true,
    problem: (argument) => problemOf(anyTextArgument(argument)),
    apply: (given, argument) =>
      given.kind === "failed" || given.value.length === 0 ? ok(argument as string) : given,
  },
  /**
   * Matches one of the given texts, ignoring case and surrounding white space; returns the given spelling.
   */
  enum: onText(textsArgument, (text, allowed) => {
    const wanted = text.trim().toLowerCase();
    const found = allowed.find((one) => one.toLowerCase() === wanted);
    return found === undefined
      ? failed(`${shown(text)} is none of ${allowed.slice(0, 10).join(", ")}`)
      : ok(found);
  }),
  /** Parses a decimal number and nothing else; returns JavaScript's shortest form. */
  number: onText(none, (text) => {
    const isNumber = /^\s*[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d{1,3})?\s*$/.test(text.slice(0, 400));
    const number = isNumber && text.length <= 400 ? Number(text) : Number.NaN;
    return Number.isFinite(number) ? ok(String(number)) : failed(`${shown(text)} is no number`);
  }),
  /** Parses a date in a form such as DD.MM.YYYY, as YYYY-MM-DD. */
  date: onText(dateArgument, (text, form) => parseDate(text.trim(), form)),
};

/** Parsed argument, or an error in it. */
type Read<Argument> = { readonly argument: Argument } | { readonly problem: string };

function problemOf(read: Read<unknown>): string | null {
  return "problem" in read ? read.problem : null;
}

/** Makes a row for a value that is a text or a list. */
function row<Argument>(
  read: (argument: unknown) => Read<Argument>,
  apply: (value: Value, argument: Argument, tools: TextTools) => Transformed,
): TransformRow {
  return {
    mends: false,
    problem: (argument) => problemOf(read(argument)),
    apply: (given, argument, tools) => {
      const known = read(argument);
      if (given.kind === "failed") return given;
      return "problem" in known ? failed(known.problem) : apply(given.value, known.argument, tools);
    },
  };
}

/** Makes a row from text to text; applies to each item of a list. */
function onText<Argument>(
  read: (argument: unknown) => Read<Argument>,
  apply: (text: string, argument: Argument, tools: TextTools) => Transformed,
): TransformRow {
  return row(read, (value, argument, tools) => {
    if (typeof value === "string") return apply(value, argument, tools);
    const items: string[] = [];
    for (const [index, item] of value.entries()) {
      const result = apply(item, argument, tools);
      if (result.kind === "failed") return failed(`item ${index}: ${result.message}`);
      items.push(result.value as string);
    }
    return ok(items);
  });
}

/** Makes a row for texts only. */
function onOne<Argument>(
  read: (argument: unknown) => Read<Argument>,
  apply: (text: string, argument: Argument) => Transformed,
): TransformRow {
  return row(read, (value, argument) =>
    typeof value === "string" ? apply(value, argument) : failed("it takes a text, but the value is a list"),
  );
}

/** Makes a row for lists only. */
function onList<Argument>(
  read: (argument: unknown) => Read<Argument>,
  apply: (items: readonly string[], argument: Argument) => Transformed,
): TransformRow {
  return row(read, (value, argument) =>
    typeof value === "string" ? failed("it takes a list, but the value is a text") : apply(value, argument),
  );
}

function tooLarge(bytes: number): Transformed {
  return failed(`it would make ${bytes} bytes, but ${valueLimits.bytesMax} are allowed`);
}

function shown(text: string): string {
  return JSON.stringify(text.length <= 40 ? text : `${text.slice(0, 39)}…`);
}

function listedLines(text: string): string[] {
  const lines: string[] = [];
  for (const line of text.split("\n")) {
    const bare = line.trim().replace(/^(?:[-*•]|\d{1,4}[.)])\s+/, "");
    if (bare !== "") lines.push(bare);
    if (lines.length > valueLimits.itemsMax) break; // already too many; `checked` reports it
  }
  return lines;
}

/* ---- arguments ---- */

function none(argument: unknown): Read<null> {
  return argument === null || argument === true ? { argument: null } : { problem: "it takes no argument" };
}

function anyTextArgument(argument: unknown): Read<string> {
  if (typeof argument !== "string") return { problem: "its argument must be a text" };
  const bytes = byteLength(argument);
  return bytes <= argumentBytesMax
    ? { argument }
    : { problem: `its argument has ${bytes} bytes, but ${argumentBytesMax} are allowed` };
}

function textArgument(argument: unknown): Read<string> {
  return argument === "" ? { problem: "its argument must not be empty" } : anyTextArgument(argument);
}

function textsArgument(argument: unknown): Read<readonly string[]> {
  const isList =
    Array.isArray(argument) && argument.length > 0 && argument.every((one) => typeof one === "string");
  if (!isList) return { problem: "its argument must be an array of texts" };
  return argument.length <= enumValuesMax
    ? { argument }
    : { problem: `its argument has ${argument.length} texts, but ${enumValuesMax} are allowed` };
}

function indexArgument(argument: unknown): Read<number> {
  return typeof argument === "number" && Number.isInteger(argument)
    ? { argument }
    : { problem: "its argument must be an integer" };
}

function countArgument(argument: unknown): Read<number> {
  return typeof argument === "number" && Number.isInteger(argument) && argument >= 1
    ? { argument }
    : { problem: "its argument must be an integer from 1" };
}

/** Reads a pattern, or a pattern and a group number. */
function regexArgument(argument: unknown): Read<Regex> {
  const { pattern, group = null } = (
    typeof argument === "string" ? { pattern: argument } : (argument ?? {})
  ) as { readonly pattern?: unknown; readonly group?: unknown };
  if (typeof pattern !== "string") return { problem: "its argument must be a pattern" };
  if (group !== null && !(typeof group === "number" && Number.isInteger(group) && group >= 0)) {
    return { problem: "group must be an integer from 0" };
  }
  const regex = compileRegex(pattern, group as number | null);
  return "problem" in regex
    ? { problem: `the pattern cannot be used: ${regex.problem}` }
    : { argument: regex };
}

function jsonArgument(argument: unknown): Read<ReturnType<typeof parseJsonPath> & object> {
  const path = typeof argument === "string" || argument === null ? parseJsonPath(argument ?? "$") : null;
  return path === null
    ? { problem: "its argument must be a path such as items[0].name or items[*]" }
    : { argument: path };
}

function dateArgument(argument: unknown): Read<string> {
  const form = argument ?? "YYYY-MM-DD";
  const isForm =
    typeof form === "string" &&
    form.length <= 40 &&
    ["YYYY", "MM", "DD"].every(
      (part) => form.split(part).length === 2 || (part === "MM" && form.includes("MMMM")),
    );
  return isForm
    ? { argument: form }
    : { problem: "its argument must be a form such as DD.MM.YYYY or DD MMMM YYYY" };
}

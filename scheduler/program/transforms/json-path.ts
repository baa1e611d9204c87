import type { Transformed } from "../spec.ts";
import { failed, ok } from "./value.ts";

/** JSON path: keys, indexes (negative ones from the end), and null for each item of an array. */
export type JsonPath = readonly (string | number | null)[];

const stepsMax = 32;

/**
 * Parses a path such as `$.items[0].name` or `items[*]["full name"]`; `$` is the whole value. Null: not a
 * path.
 */
export function parseJsonPath(text: string): JsonPath | null {
  const path: (string | number | null)[] = [];
  let rest = text.replace(/^\$\.?/, "");
  for (let isFirst = true; rest !== ""; isFirst = false) {
    const step = /^(?:\[(-?\d{1,9})\]|\[(\*)\]|\[("(?:[^"\\]|\\.)*")\]|(\.?)([A-Za-z_][\w-]*))/.exec(rest);
    if (step === null || path.length === stepsMax) return null;
    const [whole, index, star, quoted, dot, name] = step;
    if (name !== undefined && (dot === "") !== isFirst) return null;
    if (index !== undefined) path.push(Number(index));
    else if (star !== undefined) path.push(null);
    else path.push(name ?? unquoted(quoted!));
    rest = rest.slice(whole.length);
  }
  return path.includes("") || path.filter((step) => step === null).length > 1 ? null : path;
}

function unquoted(text: string): string {
  try {
    return JSON.parse(text) as string;
  } catch {
    return ""; // JSON has no such escape
  }
}

/**
 * Reads the value at the path: a text, or a list for an array. Strips the code fences that models put around
 * JSON.
 */
export function jsonAt(text: string, path: JsonPath): Transformed {
  let value: unknown;
  try {
    value = JSON.parse(
      text
        .trim()
        .replace(/^```(?:json)?\s*\n/, "")
        .replace(/\n\s*```$/, ""),
    );
  } catch {
    return failed("the text is not JSON");
  }
  const found = walk(value, path, 0);
  if ("problem" in found) return failed(found.problem);
  if (found.value === null) return failed(`there is null at ${shownPath(path)}`);
  return ok(Array.isArray(found.value) ? found.value.map(asText) : asText(found.value));
}

function walk(
  value: unknown,
  path: JsonPath,
  from: number,
): { readonly value: unknown } | { readonly problem: string } {
  let at = value;
  for (let index = from; index < path.length; index++) {
    const step = path[index]!;
    const missing = { problem: `there is nothing at ${shownPath(path.slice(0, index + 1))}` };
    if (typeof step === "string") {
      if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return missing;
      at = (at as Readonly<Record<string, unknown>>)[step];
      continue;
    }
    if (!Array.isArray(at)) return missing;
    if (step === null) {
      const items: unknown[] = [];
      for (const item of at) {
        const found = walk(item, path, index + 1);
        if ("problem" in found) return found;
        items.push(found.value);
      }
      return { value: items };
    }
    const place = step < 0 ? at.length + step : step;
    if (place < 0 || place >= at.length) return missing;
    at = at[place];
  }
  return { value: at };
}

function asText(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function shownPath(path: JsonPath): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === "string") return `${text}.${step}`;
    return `${text}[${step ?? "*"}]`;
  }, "$");
}

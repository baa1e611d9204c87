/**
 * Markup: text that counts as HTML, from `safe` and `escape`. Chat templates use it by habit. It matters
 * because text added to it with + is escaped, as in Python.
 */
import type { Runtime } from "./runtime.ts";
import { isList, Markup, Tuple, type Value } from "./values.ts";

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&#34;",
  "'": "&#39;",
};

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character]!);
}

/** Text of markup; other values unchanged. */
export function bare(value: Value): Value {
  return value instanceof Markup ? value.text : value;
}

/** A text as escaped markup; other values unchanged. */
export function escaped(value: Value): Value {
  return typeof value === "string" ? new Markup(escapeHtml(value)) : value;
}

/** Result of a str method as markup, for methods called on markup. */
export function asMarkup(value: Value): Value {
  if (typeof value === "string") return new Markup(value);
  if (isList(value)) return value.map(asMarkup);
  return value instanceof Tuple ? new Tuple(value.items.map(asMarkup)) : value;
}

/** `left + right`, one of which is markup; undefined if the other one is no text. */
export function addMarkup(rt: Runtime, left: Value, right: Value): Markup | undefined {
  const [a, b] = [escaped(left), escaped(right)];
  if (!(a instanceof Markup && b instanceof Markup)) return undefined;
  return new Markup(rt.made(a.text + b.text));
}

/**
 * What `safe` and `escape` return: text that counts as HTML. Chat templates use it by habit; it matters because what is added to
 * it with + is escaped, as in Python.
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

/** Markup as the text that it is. */
export function bare(value: Value): Value {
  return value instanceof Markup ? value.text : value;
}

/** A text as markup: escaped, unless it is that already. */
export function escaped(value: Value): Value {
  return typeof value === "string" ? new Markup(escapeHtml(value)) : value;
}

/** What a method of str returned, for markup it was called on. */
export function asMarkup(value: Value): Value {
  if (typeof value === "string") return new Markup(value);
  if (isList(value)) return value.map(asMarkup);
  return value instanceof Tuple ? new Tuple(value.items.map(asMarkup)) : value;
}

/** `left + right`, one of which is markup; undefined when the other one is no text. */
export function addMarkup(rt: Runtime, left: Value, right: Value): Markup | undefined {
  const [a, b] = [escaped(left), escaped(right)];
  if (!(a instanceof Markup && b instanceof Markup)) return undefined;
  return new Markup(rt.made(a.text + b.text));
}

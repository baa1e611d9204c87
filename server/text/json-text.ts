/**
 * The JSON that values were parsed from. JavaScript reads 1.0 as 1 and puts keys that are integers first; who writes a value
 * again as it came, as chat templates do with definitions of functions, asks for its text here.
 */
const texts = new WeakMap<object, string>();

/** `value` is what `JSON.parse` made of `text`. */
export function rememberJsonText(value: unknown, text: string): void {
  if (typeof value === "object" && value !== null) texts.set(value, text);
}

/** Undefined for what was not parsed, or is part of what was. */
export function jsonTextOf(value: object): string | undefined {
  return texts.get(value);
}

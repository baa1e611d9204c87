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

/** The values in `value`, itself among them, of which the text is known, with their texts: for a thread that gets copies of them. */
export function jsonTextsIn(value: unknown): (readonly [object, string])[] {
  const found: (readonly [object, string])[] = [];
  const look = (at: unknown): void => {
    if (typeof at !== "object" || at === null) return;
    const text = texts.get(at);
    if (text !== undefined) found.push([at, text]);
    else for (const member of Array.isArray(at) ? at : Object.values(at)) look(member);
  };
  look(value);
  return found;
}

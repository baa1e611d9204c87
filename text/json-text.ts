/**
 * Source texts of parsed JSON values. JavaScript reads 1.0 as 1 and puts integer keys first. Code that writes
 * a value unchanged, such as chat templates with function definitions, uses its source text.
 */
const texts = new WeakMap<object, string>();

/** Remembers the source text from which `JSON.parse` made a value. */
export function rememberJsonText(value: unknown, text: string): void {
  if (typeof value === "object" && value !== null) texts.set(value, text);
}

/** Source text of a value; undefined for a value that was not parsed, or is only a part of a parsed one. */
export function jsonTextOf(value: object): string | undefined {
  return texts.get(value);
}

/** Values with known source texts in `value`, itself included, for a thread that receives copies of them. */
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

/**
 * Parser of a value: transforms that the server applies to the text, and a function that reads their result
 * here.
 */
export interface Parser<T> {
  /** Transforms in the format of the API: docs/reference/programs.md. */
  readonly transforms: readonly unknown[];
  read(value: string | readonly string[]): T;
}

const text = (...transforms: unknown[]): Parser<string> => ({ transforms, read: (value) => value as string });
const list = (...transforms: unknown[]): Parser<string[]> => ({
  transforms,
  read: (value) => [...(value as readonly string[])],
});

/** Text without surrounding white space. */
export const trimmed = (): Parser<string> => text("strip");

/** Decimal number. */
export const number = (): Parser<number> => ({ transforms: ["number"], read: (value) => Number(value) });

/** Date in a format such as DD.MM.YYYY, converted to YYYY-MM-DD. */
export const date = (form = "YYYY-MM-DD"): Parser<string> => text("strip", { date: form });

/** Exactly one of these texts; the completion may differ in case and surrounding white space. */
export const oneOf = <const Texts extends readonly string[]>(...texts: Texts): Parser<Texts[number]> =>
  text({ enum: texts }) as Parser<Texts[number]>;

/** First group of the first match, or the whole match of a pattern without groups. */
export const regex = (pattern: string, group?: number): Parser<string> =>
  text({ regex: group === undefined ? pattern : { pattern, group } });

/** Value at a JSON path; other calls read it as text. `T` is its type, which is not checked. */
export const json = <T = unknown>(path = "$"): Parser<T> => ({
  transforms: [{ json: path }],
  read: (value) => (typeof value === "string" ? parsed(value) : value.map(parsed)) as T,
});

/** Non-empty lines, without list markers. */
export const lines = (): Parser<string[]> => list("lines");

/** Parts between separators. */
export const split = (separator: string): Parser<string[]> => list({ split: separator });

/** Parses JSON; returns a text that is not JSON unchanged. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

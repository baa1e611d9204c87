/** A value's form: transforms that the server applies to the text, and how the result is read here. */
export interface Parser<T> {
  /** As in the API: docs/reference/programs.md. */
  readonly transforms: readonly unknown[];
  read(value: string | readonly string[]): T;
}

const text = (...transforms: unknown[]): Parser<string> => ({ transforms, read: (value) => value as string });
const list = (...transforms: unknown[]): Parser<string[]> => ({
  transforms,
  read: (value) => [...(value as readonly string[])],
});

/** Without white space around it. */
export const trimmed = (): Parser<string> => text("strip");

/** A decimal number. */
export const number = (): Parser<number> => ({ transforms: ["number"], read: (value) => Number(value) });

/** A date in a form such as DD.MM.YYYY, as YYYY-MM-DD. */
export const date = (form = "YYYY-MM-DD"): Parser<string> => text("strip", { date: form });

/** One of these texts, in any case and with white space around it. */
export const oneOf = <const Texts extends readonly string[]>(...texts: Texts): Parser<Texts[number]> =>
  text({ enum: texts }) as Parser<Texts[number]>;

/** The first group of the first match, or the whole match of a pattern without groups. */
export const regex = (pattern: string, group?: number): Parser<string> =>
  text({ regex: group === undefined ? pattern : { pattern, group } });

/** What is at a path of JSON; other calls read it as text. `T` is what you know that it is. */
export const json = <T = unknown>(path = "$"): Parser<T> => ({
  transforms: [{ json: path }],
  read: (value) => (typeof value === "string" ? parsed(value) : value.map(parsed)) as T,
});

/** The lines with text, without list markers. */
export const lines = (): Parser<string[]> => list("lines");

/** What is between separators. */
export const split = (separator: string): Parser<string[]> => list({ split: separator });

/** A string of JSON comes as it is, without its quotes. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

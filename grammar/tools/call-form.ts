/**
 * The texts in which a model writes calls of functions, from the first to the last:
 *
 *     begin · beforeName NAME afterName ARGUMENTS afterArguments · between · beforeName … afterArguments · end
 *
 * What reads calls (text/formats/) and what holds a model to them (calls.ts) both follow it. In all of these texts
 * `CALL_NUMBER` stands for digits. Plain data.
 */
export interface CallForm {
  readonly begin: string;
  readonly beforeName: string;
  readonly afterName: string;
  readonly arguments: ArgumentsForm;
  readonly afterArguments: string;
  readonly between: string;
  readonly end: string;
  /** The beginning of `begin` and `beforeName` that no other text holds. Null: there is none, and only a name makes a call. */
  readonly trigger: string | null;
  /** Where calls may be: anywhere in an answer's text, at its end, or alone in it. */
  readonly place: "anywhere" | "end" | "alone";
  /** Calls that the model knows how to write in one answer; null: any number. */
  readonly callsMax: number | null;
}

export type ArgumentsForm =
  /** One JSON object. */
  | { readonly kind: "json" }
  /** `name=value, name=value`, as in Python. */
  | { readonly kind: "python" }
  /** `name:value,name:value` without white space, by name: strings between two quotes, objects `{name:value}`, other values as
   *  in JSON. */
  | { readonly kind: "bare"; readonly quote: string }
  /** One text per argument: strings as they are, other values as JSON. */
  | {
      readonly kind: "tagged";
      readonly beforeName: string;
      readonly afterName: string;
      /** Where the value is a string; absent: the same. */
      readonly afterTextName?: string;
      readonly afterValue: string;
      /** What of `afterValue` ends a value: text that is an argument does not hold it. */
      readonly closing: string;
    };

/** Up to four digits, by which a model tells its calls apart. */
export const CALL_NUMBER = "{number}";
export const DIGITS_MAX = 4;

/** The texts of a form's text between its numbers. */
export function partsBetweenNumbers(text: string): readonly string[] {
  return text.split(CALL_NUMBER);
}

/** Units of `text` that are the form's text, with which it begins; "open": it may still become it, "broken": it cannot. */
export function lengthOf(formText: string, text: string): number | "open" | "broken" {
  let at = 0;
  for (const [index, part] of partsBetweenNumbers(formText).entries()) {
    if (index > 0) {
      let digits = 0;
      while (digits < DIGITS_MAX && /\d/.test(text[at + digits] ?? "")) digits++;
      at += digits;
      if (digits === 0 && at < text.length) return "broken";
    }
    const rest = text.slice(at, at + part.length);
    if (rest !== part) return part.startsWith(rest) && at + rest.length === text.length ? "open" : "broken";
    at += part.length;
  }
  return at;
}

/** Texts that begin calls of the functions. */
export function triggersOf(form: CallForm, names: readonly string[]): readonly string[] {
  if (form.trigger !== null) return [form.trigger];
  return names.map((name) => form.begin + form.beforeName + name + form.afterName);
}

/**
 * Tool-call form of a model: the texts around calls, from first to last.
 *
 *    begin · beforeName NAME afterName ARGUMENTS afterArguments · between · beforeName … afterArguments · end.
 *
 * The parser of calls (text/formats/) and the constraint on the model (calls.ts) both use it. In all these
 * texts `CALL_NUMBER` stands for digits. Plain data.
 */
export interface CallForm {
  readonly begin: string;
  readonly beforeName: string;
  readonly afterName: string;
  readonly arguments: ArgumentsForm;
  readonly afterArguments: string;
  readonly between: string;
  readonly end: string;
  /**
   * Beginning of `begin` and `beforeName` that occurs in no other text. Null: none, so that only a function's
   * name identifies a call.
   */
  readonly trigger: string | null;
  /**
   * Allowed positions of calls: anywhere in an answer's text, at its end, or alone in it. With texts around
   * all calls, an answer has one block of them.
   */
  readonly place: "anywhere" | "end" | "alone";
  /** Calls per answer that the model can write; null: any number. */
  readonly callsMax: number | null;
}

export type ArgumentsForm =
  /** Arguments as one JSON object. */
  | { readonly kind: "json" }
  /**
   * Arguments as `name=value, name=value`, like in Python. Strings are JSON, or plain between single quotes
   * if they have no such quote and no backslash.
   */
  | { readonly kind: "python" }
  /**
   * Arguments as `name:value,name:value` without white space, sorted by name. Strings are between two quotes,
   * objects are `{name:value}`, other values are JSON.
   */
  | { readonly kind: "bare"; readonly quote: string }
  /** Arguments as one text each: strings plain, other values as JSON. */
  | {
      readonly kind: "tagged";
      readonly beforeName: string;
      readonly afterName: string;
      /** Text after the name of a string argument; absent: the same. */
      readonly afterTextName?: string;
      readonly afterValue: string;
      /** Part of `afterValue` that ends a value; text arguments cannot contain it. */
      readonly closing: string;
    };

/** True if the form has texts around all calls of an answer. */
export function isBlock({ begin, end }: CallForm): boolean {
  return begin !== "" || end !== "";
}

/** Placeholder of a call number, up to four digits, by which a model distinguishes its calls. */
export const CALL_NUMBER = "{number}";
export const DIGITS_MAX = 4;

/** Splits a form's text at its numbers. */
export function partsBetweenNumbers(text: string): readonly string[] {
  return text.split(CALL_NUMBER);
}

/**
 * Length of the form's text at the beginning of `text`, in UTF-16 units; "open": it may still match with more
 * text, "broken": it cannot.
 */
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

/** Returns the texts that begin calls of the functions. */
export function triggersOf(form: CallForm, names: readonly string[]): readonly string[] {
  if (form.trigger !== null) return [form.trigger];
  return names.map((name) => form.begin + form.beforeName + name + form.afterName);
}

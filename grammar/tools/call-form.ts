/**
 * Tool-call form of a model: the texts around calls, from first to last.
 *
 *    begin · beforeName NAME afterName ARGUMENTS afterArguments · between · beforeName … afterArguments · end.
 *
 * The parser of calls (text/formats/) and the constraint on the model (calls.ts) both use it. In all these
 * texts `CALL_NUMBER` stands for digits, and `CALL_ID` for nine letters or digits. Plain data.
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
   * if they have no such quote and no backslash. `words`: True, False and None, or JSON's.
   */
  | { readonly kind: "python"; readonly words: "python" | "json" }
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
/** Placeholder of a call's id that the model makes up. */
export const CALL_ID = "{id}";
export const ID_LENGTH = 9;

/** A form's text in pieces: plain texts, and placeholders. */
export function piecesOf(formText: string): readonly string[] {
  return formText.split(/(\{number\}|\{id\})/).filter((piece) => piece !== "");
}

/** Beginning of a form's text in `text`, with the id in it. */
export interface FormMatch {
  readonly length: number;
  /** Null: the form's text has no id. */
  readonly id: string | null;
}

/**
 * Matches a form's text at the beginning of `text`, lengths in UTF-16 units; "open": it may still match with
 * more text, "broken": it cannot.
 */
export function matchOf(formText: string, text: string): FormMatch | "open" | "broken" {
  let at = 0;
  let id: string | null = null;
  for (const piece of piecesOf(formText)) {
    if (piece === CALL_NUMBER || piece === CALL_ID) {
      const [pattern, min, max] =
        piece === CALL_ID
          ? ([/[A-Za-z0-9]/, ID_LENGTH, ID_LENGTH] as const)
          : ([/\d/, 1, DIGITS_MAX] as const);
      const from = at;
      while (at - from < max && pattern.test(text[at] ?? "")) at++;
      if (at - from < min) return at === text.length ? "open" : "broken";
      if (piece === CALL_ID) id = text.slice(from, at);
      continue;
    }
    const rest = text.slice(at, at + piece.length);
    if (rest !== piece) return piece.startsWith(rest) && at + rest.length === text.length ? "open" : "broken";
    at += piece.length;
  }
  return { length: at, id };
}

/** Returns the texts that begin calls of the functions. */
export function triggersOf(form: CallForm, names: readonly string[]): readonly string[] {
  if (form.trigger !== null) return [form.trigger];
  return names.map((name) => form.begin + form.beforeName + name + form.afterName);
}

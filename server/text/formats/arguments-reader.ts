import type { ArgumentsForm } from "../../../scheduler/constraint/call-form.ts";

/** The arguments of one call, from a model's way of writing them to the JSON of an object. */
export interface ArgumentsReader {
  /** `told` is JSON that goes on from what was told before. `rest` is what follows the arguments; null while they go on. */
  push(text: string): { readonly told: string; readonly rest: string | null };
  /** The text ended before them: what was held back. */
  end(): string;
}

/** A reader of one call. */
export function argumentsReader(form: ArgumentsForm): ArgumentsReader {
  if (form.kind !== "json") throw new Error(form.kind);
  return new JsonReader();
}

/** One object, as it was written. */
class JsonReader implements ArgumentsReader {
  #depth = 0;
  #isInString = false;
  #isEscaped = false;

  push(text: string): { readonly told: string; readonly rest: string | null } {
    for (let at = 0; at < text.length; at++) {
      this.#read(text[at]!);
      if (this.#depth === 0) return { told: text.slice(0, at + 1), rest: text.slice(at + 1) };
    }
    return { told: text, rest: null };
  }

  end(): string {
    return "";
  }

  #read(unit: string): void {
    if (this.#isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (unit === "\\") this.#isEscaped = true;
      else if (unit === '"') this.#isInString = false;
    } else if (unit === '"') this.#isInString = true;
    else if (unit === "{" || unit === "[") this.#depth++;
    else if (unit === "}" || unit === "]") this.#depth--;
  }
}

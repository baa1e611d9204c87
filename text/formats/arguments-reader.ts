import { isTextArgument } from "../../grammar/tools/call-arguments.ts";
import type { ArgumentsForm } from "../../grammar/tools/call-form.ts";

/** Translates the arguments of one call from a model's format to the JSON of an object. */
export interface ArgumentsReader {
  /**
   * `emitted` is JSON that continues the previous output. `rest` is the text behind the arguments; null while
   * they continue.
   */
  push(text: string): ArgumentsRead;
  /** Ends truncated arguments. Returns the output that was held back. */
  end(): string;
}

interface ArgumentsRead {
  readonly emitted: string;
  readonly rest: string | null;
}

/** Reader of one call of a function with these parameters, a JSON Schema. */
export function argumentsReader(form: ArgumentsForm, parameters: unknown): ArgumentsReader {
  switch (form.kind) {
    case "json":
      return new JsonReader();
    case "python":
      return new PythonReader();
    case "bare":
      return new BareReader(form.quote);
    case "tagged":
      return new TaggedReader(form, parameters);
  }
}

/** Reader of one JSON object, copied unchanged. */
class JsonReader implements ArgumentsReader {
  readonly #nesting = new Nesting();

  push(text: string): ArgumentsRead {
    for (let at = 0; at < text.length; at++) {
      this.#nesting.read(text[at]!);
      if (this.#nesting.isOutside) return { emitted: text.slice(0, at + 1), rest: text.slice(at + 1) };
    }
    return { emitted: text, rest: null };
  }

  end(): string {
    return "";
  }
}

/** Nesting state of a JSON text: strings and brackets. */
class Nesting {
  #depth = 0;
  #isEscaped = false;
  isInString = false;

  /** True outside all brackets and strings. */
  get isOutside(): boolean {
    return this.#depth === 0 && !this.isInString;
  }

  read(unit: string): void {
    if (this.isInString) {
      if (this.#isEscaped) this.#isEscaped = false;
      else if (unit === "\\") this.#isEscaped = true;
      else if (unit === '"') this.isInString = false;
    } else if (unit === '"') this.isInString = true;
    else if (unit === "{" || unit === "[") this.#depth++;
    else if (unit === "}" || unit === "]") this.#depth--;
  }
}

/**
 * Reader of `name=value, name=value`, up to a closing parenthesis. Values are JSON except for Python's words,
 * and for plain text between single quotes.
 */
class PythonReader implements ArgumentsReader {
  readonly #nesting = new Nesting();
  #place: "begin" | "name" | "value" | "quoted" = "begin";
  /** Name of an argument, or a word of a value, that is being read. */
  #word = "";
  /** First half of a character in a text between single quotes. */
  #half = "";

  push(text: string): ArgumentsRead {
    let emitted = "";
    for (let at = 0; at < text.length; at++) {
      const unit = text[at]!;
      if (this.#place === "begin") {
        emitted += "{";
        this.#place = "name";
      }
      if (this.#place === "quoted") emitted += this.#readQuoted(unit);
      else if (this.#nesting.isOutside && unit === ")")
        return { emitted: `${emitted}${this.#value()}}`, rest: text.slice(at) };
      else if (this.#place === "value") emitted += this.#readValue(unit);
      else if (unit === "=") {
        emitted += `${JSON.stringify(this.#word)}: `;
        this.#word = "";
        this.#place = "value";
      } else if (unit !== " ") this.#word += unit;
    }
    return { emitted, rest: null };
  }

  end(): string {
    return this.#place === "value" ? this.#value() : "";
  }

  #readValue(unit: string): string {
    if (!this.#nesting.isInString && /[A-Za-z]/.test(unit)) {
      this.#word += unit;
      return "";
    }
    const word = this.#value();
    if (!this.#nesting.isInString && unit === "'") {
      this.#place = "quoted";
      return `${word}"`;
    }
    if (this.#nesting.isOutside && unit === ",") {
      this.#place = "name";
      return `${word}, `;
    }
    this.#nesting.read(unit);
    return word + unit;
  }

  #readQuoted(unit: string): string {
    if (unit === "'") {
      this.#place = "value";
      return '"';
    }
    const text = this.#half + unit;
    this.#half = /^[\uD800-\uDBFF]$/.test(text) ? text : "";
    return this.#half === "" ? JSON.stringify(text).slice(1, -1) : "";
  }

  /** Ends the current word and translates it. */
  #value(): string {
    const word = pythonWords[this.#word] ?? this.#word;
    this.#word = "";
    return word;
  }
}

const pythonWords: Readonly<Record<string, string>> = { True: "true", False: "false", None: "null" };

/**
 * Reader of `name:value,name:value`, up to a closing bracket: strings between delimiters, objects with bare
 * keys.
 */
class BareReader implements ArgumentsReader {
  readonly #quote: string;
  #place: "begin" | "name" | "value" | "text" = "begin";
  /** Open brackets. */
  readonly #open: ("{" | "[")[] = [];
  #name = "";
  /** Text that was held back. */
  #held = "";

  constructor(quote: string) {
    this.#quote = quote;
  }

  push(text: string): ArgumentsRead {
    let all = this.#held + text;
    let emitted = "";
    this.#held = "";
    if (this.#place === "begin" && all !== "") {
      emitted = "{";
      this.#place = "name";
    }
    while (all !== "") {
      if (this.#place === "text") {
        const at = all.indexOf(this.#quote);
        const end = at < 0 ? certainEnd(all, this.#quote) : at;
        emitted += JSON.stringify(all.slice(0, end)).slice(1, -1);
        if (at < 0) {
          this.#held = all.slice(end);
          break;
        }
        emitted += '"';
        this.#place = "value";
        all = all.slice(at + this.#quote.length);
      } else if (this.#place === "value" && this.#quote.startsWith(all.slice(0, this.#quote.length))) {
        if (all.length < this.#quote.length) {
          this.#held = all;
          break;
        }
        emitted += '"';
        this.#place = "text";
        all = all.slice(this.#quote.length);
      } else {
        const unit = all[0]!;
        if (unit === "}" && this.#open.length === 0) return { emitted: `${emitted}}`, rest: all };
        emitted += this.#place === "name" ? this.#readName(unit) : this.#readValue(unit);
        all = all.slice(1);
      }
    }
    return { emitted, rest: null };
  }

  /** Returns nothing: held-back text is the beginning of a delimiter. */
  end(): string {
    return "";
  }

  #readName(unit: string): string {
    if (unit === "}" && this.#name === "") return this.#readValue(unit);
    if (unit !== ":") {
      this.#name += unit;
      return "";
    }
    const name = JSON.stringify(this.#name);
    this.#name = "";
    this.#place = "value";
    return `${name}: `;
  }

  #readValue(unit: string): string {
    if (unit === ",") {
      this.#place = this.#open.at(-1) === "[" ? "value" : "name";
      return ", ";
    }
    if (unit === "{" || unit === "[") {
      this.#open.push(unit);
      this.#place = unit === "{" ? "name" : "value";
    } else if (unit === "}" || unit === "]") {
      this.#open.pop();
      this.#place = "value";
    }
    return unit;
  }
}

/** Reader of one text per argument: strings literally, others as JSON. */
class TaggedReader implements ArgumentsReader {
  readonly #form: Extract<ArgumentsForm, { kind: "tagged" }>;
  readonly #parameters: unknown;
  #place: "begin" | "between" | "name" | "text" | "json" = "begin";
  #count = 0;
  /** Text that was held back. */
  #held = "";

  constructor(form: Extract<ArgumentsForm, { kind: "tagged" }>, parameters: unknown) {
    this.#form = form;
    this.#parameters = parameters;
  }

  push(text: string): ArgumentsRead {
    let all = this.#held + text;
    let emitted = "";
    this.#held = "";
    if (this.#place === "begin" && text !== "") {
      emitted = "{";
      this.#place = "between";
    }
    while (all !== "") {
      const { beforeName, afterName, afterTextName, afterValue } = this.#form;
      if (this.#place === "between") {
        if (all.startsWith(beforeName)) {
          this.#place = "name";
          all = all.slice(beforeName.length);
        } else if (beforeName.startsWith(all)) break;
        else return { emitted: `${emitted}}`, rest: all };
      } else if (this.#place === "name") {
        const isText = afterTextName !== undefined && endOf(all, afterTextName) < endOf(all, afterName);
        const mark = isText ? afterTextName : afterName;
        const at = all.indexOf(mark);
        if (at < 0) break;
        const name = all.slice(0, at);
        const isPlain = afterTextName === undefined ? isTextArgument(this.#parameters, name) : isText;
        this.#place = isPlain ? "text" : "json";
        emitted += `${this.#count++ === 0 ? "" : ", "}${JSON.stringify(name)}: ${this.#quote}`;
        all = all.slice(at + mark.length);
      } else {
        const at = all.indexOf(afterValue);
        const end = at < 0 ? certainEnd(all, afterValue) : at;
        emitted += this.#valueOf(all.slice(0, end));
        all = all.slice(end);
        if (at < 0) break;
        emitted += this.#quote;
        this.#place = "between";
        all = all.slice(afterValue.length);
      }
    }
    this.#held = all;
    return { emitted, rest: null };
  }

  /** Returns nothing: held-back text is the beginning of a delimiter. */
  end(): string {
    return "";
  }

  get #quote(): string {
    return this.#place === "text" ? '"' : "";
  }

  #valueOf(text: string): string {
    return this.#place === "text" ? JSON.stringify(text).slice(1, -1) : text;
  }
}

/** End of the first occurrence of `mark`; Infinity if there is none. */
function endOf(text: string, mark: string): number {
  const at = text.indexOf(mark);
  return at < 0 ? Number.POSITIVE_INFINITY : at + mark.length;
}

/** Length of the text without a possible beginning of `mark`, or half a character, at its end. */
function certainEnd(text: string, mark: string): number {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; length--)
    if (mark.startsWith(text.slice(-length))) return text.length - length;
  return /[\uD800-\uDBFF]$/.test(text) ? text.length - 1 : text.length;
}

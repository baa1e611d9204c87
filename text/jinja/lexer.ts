/**
 * Splits a template into tokens, with trim_blocks and lstrip_blocks on, as transformers reads chat templates.
 */
import { fail } from "./errors.ts";

export type Token =
  | {
      readonly kind: "data" | "string" | "name" | "operator" | "float";
      readonly text: string;
      readonly line: number;
    }
  | { readonly kind: "integer"; readonly text: string; readonly value: bigint; readonly line: number }
  | {
      readonly kind: "block_begin" | "block_end" | "variable_begin" | "variable_end" | "eof";
      readonly text: string;
      readonly line: number;
    };

/** White space of Python's `str.isspace`, as the inside of a character class. */
export const whiteSpace =
  "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";

const spaceAtEnd = new RegExp(`[${whiteSpace}]+$`);
const spaces = new RegExp(`[${whiteSpace}]*`, "y");
const onlySpaces = new RegExp(`^[${whiteSpace}]+$`);
const tagStart = /\{%|\{\{|\{#/g;
const rawStart = new RegExp(`\\{%[-+]?[${whiteSpace}]*raw[${whiteSpace}]*(-?)%\\}`, "y");
const rawEnd = new RegExp(`\\{%([-+]?)[${whiteSpace}]*endraw[${whiteSpace}]*([-+]?)%\\}`, "g");
const number =
  /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)|0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy;
const name = /[\p{XID_Start}_][\p{XID_Continue}]*/uy;
const string = /'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*"/y;
const operator = /\/\/|\*\*|==|!=|>=|<=|[+\-/*%~[\](){}><=.:|,;]/y;
const closers: Readonly<Record<string, string>> = { "(": ")", "[": "]", "{": "}" };

/** Tokens of a template. Throws JinjaError. */
export function tokenize(template: string): Token[] {
  const source = template.replace(/\r\n|\r/g, "\n").replace(/\n$/, "");
  return new Lexer(source).run();
}

class Lexer {
  readonly #source: string;
  readonly #tokens: Token[] = [];
  #at = 0;
  /** True if the text before this position ended a line, or is empty. */
  #lineStarts = true;
  #line = 1;
  #lineCountedTo = 0;

  constructor(source: string) {
    this.#source = source;
  }

  run(): Token[] {
    while (this.#at < this.#source.length) {
      tagStart.lastIndex = this.#at;
      const tag = tagStart.exec(this.#source);
      if (tag === null) {
        this.#push("data", this.#source.slice(this.#at));
        break;
      }
      this.#tag(tag[0], tag.index);
    }
    this.#at = this.#source.length;
    this.#push("eof", "");
    return this.#tokens;
  }

  #tag(opening: string, start: number): void {
    const sign = this.#source[start + 2] ?? "";
    const isSigned = sign === "-" || sign === "+";
    this.#data(this.#source.slice(this.#at, start), sign, opening !== "{{");
    this.#at = start;
    if (opening === "{%" && this.#raw()) return;
    this.#at = start + opening.length + (isSigned ? 1 : 0);
    if (opening === "{#") this.#comment();
    else this.#code(opening === "{%" ? "block" : "variable");
  }

  /**
   * Adds the text before a tag. `sign` is the tag's; `stripsLine`: the tag may remove white space before it
   * on its line.
   */
  #data(text: string, sign: string, stripsLine: boolean): void {
    let kept = text;
    if (sign === "-") kept = text.replace(spaceAtEnd, "");
    else if (sign !== "+" && stripsLine) {
      const lineStart = text.lastIndexOf("\n") + 1;
      const mayStrip = lineStart > 0 || this.#lineStarts;
      if (mayStrip && onlySpaces.test(text.slice(lineStart))) kept = text.slice(0, lineStart);
    }
    if (kept !== "") this.#push("data", kept);
  }

  #raw(): boolean {
    rawStart.lastIndex = this.#at;
    const start = rawStart.exec(this.#source);
    if (start === null) return false;
    let from = rawStart.lastIndex;
    if (start[1] === "-") from = this.#afterSpaces(from);
    rawEnd.lastIndex = from;
    const end = rawEnd.exec(this.#source);
    if (end === null && from >= this.#source.length) {
      this.#at = from; // Jinja lets a template end right here
      return true;
    }
    if (end === null)
      return fail("TemplateSyntaxError", `line ${this.#lineNow()}: Missing end of raw directive`);
    this.#lineStarts = this.#source[from - 1] === "\n";
    this.#at = from;
    this.#data(this.#source.slice(from, end.index), end[1]!, true);
    this.#endTag(rawEnd.lastIndex, end[2]!, true);
    return true;
  }

  #comment(): void {
    const end = this.#source.indexOf("#}", this.#at);
    if (end < 0) fail("TemplateSyntaxError", `line ${this.#lineNow()}: Missing end of comment tag`);
    const sign = end > this.#at ? this.#source[end - 1]! : "";
    this.#endTag(end + 2, sign, true);
  }

  /** Moves past a tag whose closing bracket ends at `end`. */
  #endTag(end: number, sign: string, trimsLine: boolean): void {
    this.#at = end;
    if (sign === "-") this.#at = this.#afterSpaces(end);
    else if (sign !== "+" && trimsLine && this.#source[end] === "\n") this.#at = end + 1;
    this.#lineStarts = this.#source[this.#at - 1] === "\n";
  }

  #afterSpaces(from: number): number {
    spaces.lastIndex = from;
    spaces.exec(this.#source);
    return spaces.lastIndex;
  }

  #code(kind: "block" | "variable"): void {
    const closing = kind === "block" ? "%}" : "}}";
    const open: string[] = [];
    this.#push(`${kind}_begin`, "");
    while (this.#at < this.#source.length) {
      if (open.length === 0) {
        const sign = this.#source[this.#at]!;
        const isSigned = sign === "-" || (sign === "+" && kind === "block");
        if (this.#source.startsWith(closing, this.#at + (isSigned ? 1 : 0))) {
          this.#push(`${kind}_end`, "");
          this.#endTag(
            this.#at + closing.length + (isSigned ? 1 : 0),
            isSigned ? sign : "",
            kind === "block",
          );
          return;
        }
      }
      this.#codeToken(open);
    }
  }

  #codeToken(open: string[]): void {
    const spacesEnd = this.#afterSpaces(this.#at);
    if (spacesEnd > this.#at) {
      this.#at = spacesEnd;
      return;
    }
    const match = (pattern: RegExp): string | undefined => {
      pattern.lastIndex = this.#at;
      return pattern.exec(this.#source)?.[0];
    };
    const kinds = [number, name, string, operator] as const;
    const kind = kinds.find((pattern) => match(pattern) !== undefined);
    const text = kind === undefined ? "" : match(kind)!;
    if (kind === number) this.#number(text);
    else if (kind === name) this.#push("name", text.normalize("NFKC"));
    else if (kind === string) this.#push("string", this.#unescaped(text.slice(1, -1)));
    else if (kind === operator) {
      this.#balance(text, open);
      this.#push("operator", text);
    } else {
      const unexpected = String.fromCodePoint(this.#source.codePointAt(this.#at)!);
      fail("TemplateSyntaxError", `line ${this.#lineNow()}: unexpected char '${unexpected}' at ${this.#at}`);
    }
    this.#at += text.length;
  }

  #number(text: string): void {
    const digits = text.replaceAll("_", "");
    if (/^0[box]/i.test(digits) || /^\d+$/.test(digits)) {
      this.#tokens.push({
        kind: "integer",
        text,
        value: BigInt(digits.toLowerCase()),
        line: this.#lineNow(),
      });
    } else this.#push("float", digits);
  }

  #balance(text: string, open: string[]): void {
    const closer = closers[text];
    if (closer !== undefined) open.push(closer);
    else if (text === ")" || text === "]" || text === "}") {
      const expected = open.pop();
      if (expected === undefined)
        fail("TemplateSyntaxError", `line ${this.#lineNow()}: unexpected '${text}'`);
      if (expected !== text) {
        fail("TemplateSyntaxError", `line ${this.#lineNow()}: unexpected '${text}', expected '${expected}'`);
      }
    }
  }

  /** Unescapes a string literal, as in Python. */
  #unescaped(text: string): string {
    if (!text.includes("\\")) return text;
    const plain: Readonly<Record<string, string>> = {
      "\n": "",
      "\\": "\\",
      "'": "'",
      '"': '"',
      a: "\x07",
      b: "\b",
      f: "\f",
      n: "\n",
      r: "\r",
      t: "\t",
      v: "\v",
    };
    const pattern = /\\(?:x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|([0-7]{1,3})|([\s\S]))/g;
    return text.replace(pattern, (whole, x, u, long, octal, other: string) => {
      const hex: string | undefined = x ?? u ?? long;
      const code = hex !== undefined ? Number.parseInt(hex, 16) : octal && Number.parseInt(octal, 8);
      if (typeof code === "number") {
        if (code > 0x10ffff)
          fail("TemplateSyntaxError", `line ${this.#lineNow()}: illegal Unicode character`);
        return String.fromCodePoint(code);
      }
      if (other === "x" || other === "u" || other === "U" || other === "N")
        fail("TemplateSyntaxError", `line ${this.#lineNow()}: truncated \\${other} escape`);
      return plain[other] ?? whole;
    });
  }

  #push(kind: Exclude<Token["kind"], "integer">, text: string): void {
    this.#tokens.push({ kind, text, line: this.#lineNow() });
  }

  /** Current line number. Counts each part of the source once, as tokens are made. */
  #lineNow(): number {
    for (; this.#lineCountedTo < this.#at; this.#lineCountedTo++)
      if (this.#source.charCodeAt(this.#lineCountedTo) === 10) this.#line++;
    return this.#line;
  }
}

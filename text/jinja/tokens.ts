import { fail } from "./errors.ts";
import type { Token } from "./lexer.ts";

/** A parser's position in its tokens. */
export class TokenStream {
  readonly #tokens: readonly Token[];
  #at = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  get current(): Token {
    return this.#tokens[this.#at]!;
  }

  get following(): Token {
    return this.#tokens[Math.min(this.#at + 1, this.#tokens.length - 1)]!;
  }

  next(): Token {
    const token = this.current;
    if (token.kind !== "eof") this.#at++;
    return token;
  }

  isOperator(text: string): boolean {
    return this.current.kind === "operator" && this.current.text === text;
  }

  isName(text: string): boolean {
    return this.current.kind === "name" && this.current.text === text;
  }

  skipOperator(text: string): boolean {
    const isThere = this.isOperator(text);
    if (isThere) this.next();
    return isThere;
  }

  skipName(text: string): boolean {
    const isThere = this.isName(text);
    if (isThere) this.next();
    return isThere;
  }

  expectOperator(text: string): void {
    if (!this.skipOperator(text)) this.#unexpected(`'${text}'`);
  }

  expectName(text?: string): string {
    const { current } = this;
    if (current.kind !== "name" || (text !== undefined && current.text !== text)) {
      return this.#unexpected(text === undefined ? "a name" : `'${text}'`);
    }
    this.next();
    return current.text;
  }

  expectKind(kind: Token["kind"]): void {
    if (this.current.kind !== kind) this.#unexpected(describe({ kind, text: "" }));
    this.next();
  }

  fail(message: string): never {
    return fail("TemplateSyntaxError", `line ${this.current.line}: ${message}`);
  }

  #unexpected(wanted: string): never {
    return this.fail(`expected ${wanted}, got ${describe(this.current)}`);
  }
}

export function describe(token: Pick<Token, "kind" | "text">): string {
  switch (token.kind) {
    case "block_begin":
      return "'{%'";
    case "block_end":
      return "'%}'";
    case "variable_begin":
      return "'{{'";
    case "variable_end":
      return "'}}'";
    case "eof":
      return "the end of the template";
    case "data":
      return "text";
    default:
      return `'${token.text}'`;
  }
}

/** Python's exception for an error: jinja2's own, or a built-in one. */
export type ErrorKind =
  | "TemplateSyntaxError"
  | "TemplateAssertionError"
  | "TemplateRuntimeError"
  | "TemplateError"
  | "UndefinedError"
  | "SecurityError"
  | "FilterArgumentError"
  | "AssertionError"
  | "TypeError"
  | "ValueError"
  | "SyntaxError"
  | "AttributeError"
  | "KeyError"
  | "IndexError"
  | "OverflowError"
  | "ZeroDivisionError"
  /** A limit of ours that Python lacks or sets otherwise. */
  | "LimitError";

/** Error of an invalid template, or of a failed rendering. */
export class JinjaError extends Error {
  override readonly name = "JinjaError";
  readonly kind: ErrorKind;

  constructor(kind: ErrorKind, message: string) {
    super(message);
    this.kind = kind;
  }
}

export function fail(kind: ErrorKind, message: string): never {
  throw new JinjaError(kind, message);
}

/** Which exception Python would raise: jinja2's own, or one of the language's. */
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
  /** One of our own limits: Python has none of them, or another. */
  | "LimitError";

/** A template that cannot be parsed, or that failed while it was rendered. */
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

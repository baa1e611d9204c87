/**
 * Error of a template that refused the messages or exceeded its limits. The sentence is fit for the client.
 */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
  /** True if the messages caused the error, so that others may succeed. */
  readonly isOfMessages: boolean;

  constructor(message: string, isOfMessages = false) {
    super(message);
    this.isOfMessages = isOfMessages;
  }
}

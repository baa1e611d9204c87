/** The template refused the messages, or ran away. The sentence is fit for the client. */
export class TemplateError extends Error {
  override readonly name = "TemplateError";
  /** It failed on what the messages are: others may pass. */
  readonly isOfMessages: boolean;

  constructor(message: string, isOfMessages = false) {
    super(message);
    this.isOfMessages = isOfMessages;
  }
}

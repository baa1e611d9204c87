/** Errors whose message is a sentence for people; the stack would only be in the way. */
const NAMES = new Set([
  "ConfigError",
  "ModelError",
  "NativeError",
  "TokenizerError",
  "TemplateError",
  "ServerError",
]);

/** Whether an error is something that a person did or can mend, rather than a bug. */
export function isForPeople(error: unknown): error is Error {
  return error instanceof Error && NAMES.has(error.name);
}

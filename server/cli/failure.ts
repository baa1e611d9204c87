/** Errors whose message is a sentence for people; printed without the stack. */
const NAMES = new Set([
  "ConfigError",
  "HubError",
  "ModelError",
  "NativeError",
  "TokenizerError",
  "TemplateError",
  "ServerError",
]);

/** True if the user can fix the error's cause; false for a bug. */
export function isForPeople(error: unknown): error is Error {
  return error instanceof Error && NAMES.has(error.name);
}

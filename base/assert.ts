/**
 * Error for a broken invariant, which is a bug: it ends the engine instead of letting it compute wrong
 * results.
 */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Asserts an invariant, in production too. Expected outcomes are values, never asserts. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

/** A broken invariant is a bug: it ends the engine loudly instead of going on wrong. */
export class InvariantError extends Error {
  override readonly name = "InvariantError";
}

/** Asserts an invariant, in production too. Expected outcomes are values, never asserts. */
export function assert(condition: boolean, message: string): asserts condition {
  if (!condition) throw new InvariantError(message);
}

const SEAL = "bunting-1:";

/**
 * Reasoning as one opaque string, for clients that keep nothing else of it. It is not a secret: answers show the
 * same text on request.
 */
export function sealedReasoning(text: string): string {
  return SEAL + Buffer.from(text).toString("base64");
}

/** Reasoning in a string sealed by this server; empty for another server's. */
export function openedReasoning(sealed: string): string[] {
  return sealed.startsWith(SEAL) ? [Buffer.from(sealed.slice(SEAL.length), "base64").toString()] : [];
}

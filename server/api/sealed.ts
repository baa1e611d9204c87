const SEAL = "bunting-1:";

/**
 * Reasoning, or a summary, as one opaque string, for clients that keep nothing else of it. It is not a secret: the
 * model's own text, which it hides from nobody.
 */
export function sealedText(text: string): string {
  return SEAL + Buffer.from(text).toString("base64");
}

/** Text in a string sealed by this server; empty for another server's. */
export function openedText(sealed: string): string[] {
  return sealed.startsWith(SEAL) ? [Buffer.from(sealed.slice(SEAL.length), "base64").toString()] : [];
}

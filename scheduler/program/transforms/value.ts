import type { Transformed, Value } from "../spec.ts";

/** Limits of every value, set by a client, a call or a transform. */
export const valueLimits = {
  /** Bytes of text in UTF-8 at most, summed over all items. */
  bytesMax: 1024 * 1024,
  itemsMax: 1024,
} as const;

/** Returns the value, or a failure if it exceeds the limits. */
export function checked(value: Value): Transformed {
  const { bytesMax, itemsMax } = valueLimits;
  const items = typeof value === "string" ? [value] : value;
  if (items.length > itemsMax) return failed(`a list of ${items.length} items, but ${itemsMax} are allowed`);
  let bytes = 0;
  for (const item of items) bytes += byteLength(item);
  return bytes > bytesMax ? failed(`a value of ${bytes} bytes, but ${bytesMax} are allowed`) : ok(value);
}

/** Successful result of a transform. */
export function ok(value: Value): Transformed {
  return { kind: "value", value };
}

/** Failure with its error sentence. */
export function failed(message: string): Transformed {
  return { kind: "failed", message };
}

/** Bytes of a text in UTF-8. */
export function byteLength(text: string): number {
  let bytes = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800 || (unit & 0xf800) === 0xd800)
      bytes += 2; // a surrogate stands for half of four bytes
    else bytes += 3;
  }
  return bytes;
}

/** Text functions of the model that transforms use. */
export interface TextTools {
  /** Returns the longest beginning of a text with at most `tokensMax` tokens. */
  truncate(text: string, tokensMax: number): string;
}

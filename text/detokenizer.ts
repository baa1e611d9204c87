import type { TokenId } from "../base/token.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * One stream's bytes to text. A scalar whose bytes are spread over several tokens comes out whole, with the token
 * that completes it; bytes that are no UTF-8 become U+FFFD exactly as if the whole output were decoded at once.
 */
export class StreamDetokenizer {
  // ignoreBOM: a byte order mark the model wrote is text like any other.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** No scalar is unfinished; where it is not known, false. */
  #isWhole = true;

  /** As `push` of the token's bytes; those of most are text of their own, which is known. */
  pushToken(token: TokenId, tokenizer: Pick<Tokenizer, "bytesOf" | "textOf">): string {
    const text = tokenizer.textOf(token);
    if (text === "" || (text !== null && this.#isWhole)) return text;
    this.#isWhole = text !== null; // whole scalars end what is unfinished before them
    return this.push(tokenizer.bytesOf(token));
  }

  /** Text that is complete with these bytes; empty while a scalar is unfinished. */
  push(bytes: Uint8Array): string {
    return bytes.length === 0 ? "" : this.#decoder.decode(bytes, { stream: true });
  }

  /** What is left at the end of the stream: U+FFFD for an unfinished scalar, else nothing. */
  end(): string {
    return this.#decoder.decode();
  }
}

import type { TokenId } from "../base/token.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * Decodes one stream's bytes to text. A scalar whose bytes are spread over several tokens comes out whole,
 * with the token that completes it. Bytes that are no UTF-8 become U+FFFD exactly as in a decoding of the
 * whole output.
 */
export class StreamDetokenizer {
  // ignoreBOM: a byte order mark the model wrote is text like any other.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** True if certainly no scalar is unfinished. */
  #isWhole = true;

  /** Same as `push` of the token's bytes, with a fast path for tokens of whole characters. */
  pushToken(token: TokenId, tokenizer: Pick<Tokenizer, "bytesOf" | "textOf">): string {
    const text = tokenizer.textOf(token);
    if (text === "" || (text !== null && this.#isWhole)) return text;
    this.#isWhole = text !== null; // whole characters end an unfinished scalar before them
    return this.push(tokenizer.bytesOf(token));
  }

  /** Text that these bytes complete; empty while a scalar is unfinished. */
  push(bytes: Uint8Array): string {
    return bytes.length === 0 ? "" : this.#decoder.decode(bytes, { stream: true });
  }

  /** Text at the end of the stream: U+FFFD for an unfinished scalar, else "". */
  end(): string {
    return this.#decoder.decode();
  }
}

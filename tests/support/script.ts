/** Script for the simulated device: texts in place of its own tokens. */

import type { TokenId } from "../../base/token.ts";
import type { Script } from "../../gpu/simulated/device.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

/**
 * Returns the texts that the model would write after a prompt, in order of preference. The draw continues
 * with the first text that the output so far is a beginning of. An answer constrained to calls or JSON thus
 * selects the text of that form.
 */
export type Says = (prompt: string, seed: number) => readonly string[];

interface Line {
  readonly text: Buffer;
  readonly tokens: readonly TokenId[];
}

/**
 * Makes a script that draws the tokens of the texts, then end tokens. After forced tokens, or when the mask
 * did not allow the text's token, the script realigns. It continues in a text that begins with the output,
 * else at the same token count of the first text.
 */
export function scriptOf(tokenizer: Tokenizer, endTokens: readonly TokenId[], says: Says): Script {
  const encode = (text: string, continues: boolean): TokenId[] =>
    tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true, continues });
  const bytesOf = (tokens: ArrayLike<TokenId>): Buffer =>
    Buffer.concat(Array.from(tokens, (token) => tokenizer.bytesOf(token)));
  const linesOf = new Map<SequenceId, readonly Line[]>();

  /**
   * Returns the token after the drawn ones, or an end token after the last; null: the output is not the
   * text's beginning.
   */
  const next = ({ text, tokens }: Line, drawn: readonly TokenId[], drawnText: Buffer): TokenId | null => {
    if (drawn.every((token, i) => token === tokens[i])) return tokens[drawn.length] ?? endTokens[0]!;
    if (!text.subarray(0, drawnText.length).equals(drawnText)) return null;
    return encode(text.subarray(drawnText.length).toString(), true)[0] ?? endTokens[0]!;
  };

  return (sequence, { position, sampling }, context) => {
    const all = Array.from(context);
    let lines = linesOf.get(sequence);
    if (lines === undefined) {
      const prompt = bytesOf(all.slice(0, all.length - position)).toString();
      lines = says(prompt, sampling.seed[0]).map((text) => ({
        text: Buffer.from(text),
        tokens: encode(text, false),
      }));
      linesOf.set(sequence, lines);
    }
    const drawn = all.slice(all.length - position);
    const drawnText = bytesOf(drawn);
    const wanted = lines.map((line) => next(line, drawn, drawnText)).filter((token) => token !== null);
    const instead = wanted.length > 0 ? [] : (lines[0]?.tokens.slice(position, position + 1) ?? []);
    return [...wanted, ...instead, ...endTokens];
  };
}

/** What a model says, for the simulated device: texts in place of its own tokens. */

import type { TokenId } from "../../base/token.ts";
import type { Script } from "../../gpu/simulated/device.ts";
import type { SequenceId } from "../../scheduler/core.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

/** The texts that the model would write after a prompt, the one wanted most first: what is drawn goes on with the first that
 *  it is the beginning of, so that an answer which is held to calls or to JSON takes the text that is one. */
export type Says = (prompt: string, seed: number) => readonly string[];

interface Line {
  readonly text: Buffer;
  readonly tokens: readonly TokenId[];
}

/** Draws the tokens of the texts, and end tokens after them. What was forced, or drawn where the texts' tokens were not allowed,
 *  is gone on from: after it in a text that begins with it, else at the same number of tokens of the first. */
export function scriptOf(tokenizer: Tokenizer, endTokens: readonly TokenId[], says: Says): Script {
  const encode = (text: string, continues: boolean): TokenId[] =>
    tokenizer.encode(text, { addSpecialTokens: false, parseControlText: true, continues });
  const bytesOf = (tokens: ArrayLike<TokenId>): Buffer =>
    Buffer.concat(Array.from(tokens, (token) => tokenizer.bytesOf(token)));
  const linesOf = new Map<SequenceId, readonly Line[]>();

  /** The token after those that were drawn, an end token after the last; null: they are not the text's beginning. */
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

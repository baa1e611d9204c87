import type { TextTools } from "../../scheduler/program/transforms/value.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

/** Token-based text functions for transforms. */
export function textToolsOf(tokenizer: Tokenizer): TextTools {
  return {
    truncate(text, tokensMax) {
      const tokens = tokenizer.encode(text, { addSpecialTokens: false });
      if (tokens.length <= tokensMax) return text;
      // A cut within a character decodes to a replacement character; at most three tokens earlier there is a
      // clean cut.
      for (let count = tokensMax; count > Math.max(0, tokensMax - 4); count--) {
        const beginning = tokenizer.decode(tokens.slice(0, count), { skipSpecialTokens: false });
        if (text.startsWith(beginning)) return beginning;
      }
      return tokenizer
        .decode(tokens.slice(0, tokensMax), { skipSpecialTokens: false })
        .replace(/\uFFFD+$/, "");
    },
  };
}

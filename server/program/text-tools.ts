import type { TextTools } from "../../scheduler/program/transforms/value.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

/** What transforms ask of the model's text. */
export function textToolsOf(tokenizer: Tokenizer): TextTools {
  return {
    truncate(text, tokensMax) {
      const tokens = tokenizer.encode(text, { addSpecialTokens: false });
      if (tokens.length <= tokensMax) return text;
      // A cut may be within a character, which decodes to something else: at most three tokens back it is not.
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

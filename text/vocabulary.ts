import { controlBytes, type Vocabulary, vocabularyOf } from "../grammar/mask/vocabulary.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** What the model's `size` tokens stand for in a text that is held to a constraint: control tokens are no text, and are
 *  written only where a constraint asks for one. */
export function textVocabulary(tokenizer: Tokenizer, size: number): Vocabulary {
  const bytesOf = (token: number): Uint8Array => {
    const bytes = tokenizer.bytesOf(token);
    return tokenizer.isControl(token) ? controlBytes(bytes) : bytes;
  };
  return vocabularyOf(size, bytesOf, tokenizer.isAdded);
}

import { controlBytes, type Vocabulary, vocabularyOf } from "../grammar/mask/vocabulary.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * Bytes of the model's `size` tokens for constrained text. Control tokens are no text: they are generated
 * only where a constraint asks for one.
 */
export function textVocabulary(tokenizer: Tokenizer, size: number): Vocabulary {
  const bytesOf = (token: number): Uint8Array => {
    const bytes = tokenizer.bytesOf(token);
    return tokenizer.isControl(token) ? controlBytes(bytes) : bytes;
  };
  return vocabularyOf(size, bytesOf, tokenizer.isAdded);
}

import { type Vocabulary, vocabularyOf } from "../../scheduler/constraint/vocabulary.ts";
import type { Tokenizer } from "./tokenizer.ts";

const nothing = new Uint8Array(0);

/** What the model's `size` tokens stand for in a text that is held to a constraint: control tokens are no text. */
export function textVocabulary(tokenizer: Tokenizer, size: number): Vocabulary {
  return vocabularyOf(size, (token) => (tokenizer.isControl(token) ? nothing : tokenizer.bytesOf(token)));
}

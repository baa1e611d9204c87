/** A vocabulary entry, 0 … vocabSize-1. */
export type TokenId = number;

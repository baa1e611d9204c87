/** Vocabulary entry, 0 … vocabSize-1. */
export type TokenId = number;

/** Hidden states from which an embedding is made: the mean of all, the first or the last token's. */
export type Pooling = "mean" | "first" | "last";

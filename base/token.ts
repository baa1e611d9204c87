/** A vocabulary entry, 0 … vocabSize-1. */
export type TokenId = number;

/** Which of a text's hidden states its embedding is made of: the mean of all, or the one of its first or last token. */
export type Pooling = "mean" | "first" | "last";

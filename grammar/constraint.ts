import type { TokenId } from "../base/token.ts";
import type { Grammar } from "./grammar.ts";

/** What an output's text must be. Plain data. */
export interface Constraint {
  /** The same for constraints that are the same. */
  readonly id: string;
  readonly grammar: Grammar;
  /** Of the thoughts before it, which are a part of its grammar; absent: they may have any length. */
  readonly thoughts?: ThoughtsLimit;
}

/** Thoughts have so many tokens at most: then those of the mark that closes them are drawn. */
export interface ThoughtsLimit {
  readonly tokensMax: number;
  /** The prompt has begun them; else a text may begin with their opening mark. */
  readonly isOpen: boolean;
  /** Marks, as bytes of the vocabulary (mask/vocabulary.ts). */
  readonly opening: readonly number[];
  readonly closing: readonly number[];
  readonly closingTokens: readonly TokenId[];
}

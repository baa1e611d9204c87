import type { TokenId } from "../base/token.ts";
import type { Grammar } from "./grammar.ts";

/** Constraint on an output's text. Plain data. */
export interface Constraint {
  /** ID, equal for equal constraints. */
  readonly id: string;
  readonly grammar: Grammar;
  /** Limit on the thoughts before the answer, which are part of its grammar; absent: no limit. */
  readonly thoughts?: ThoughtsLimit;
}

/** Limit on thoughts, in tokens: at the limit the tokens of the closing mark are forced. */
export interface ThoughtsLimit {
  readonly tokensMax: number;
  /** True if the prompt has opened the thoughts; else the text may begin with the opening mark. */
  readonly isOpen: boolean;
  /** Opening mark, as bytes of the vocabulary (mask/vocabulary.ts); likewise `closing`. */
  readonly opening: readonly number[];
  readonly closing: readonly number[];
  readonly closingTokens: readonly TokenId[];
}

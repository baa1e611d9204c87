import type { TokenId } from "../../base/token.ts";
import type { DeviceDraft, SequenceSpec } from "../core.ts";

/** Draft tokens: a guess of the next tokens of a sequence. */
export interface Draft {
  readonly tokens: readonly TokenId[];
  /**
   * Kind of each token, as its source numbers them. Tokens of one kind have about the same acceptance rate, given
   * that all draft tokens before them are accepted.
   */
  readonly kinds: readonly number[];
  /** True if they are of the prediction that came with the request (`SequenceSpec.prediction`). Absent: false. */
  readonly isPredicted?: boolean;
}

/** Port: drafts the tokens of one sequence. */
export interface Drafter {
  /**
   * Drafts at most `most` ≥ 1 tokens that follow the first `length` of `tokens`. These only grow from call to
   * call. `device`: the device's own draft at this position, if it made one. Null: no draft.
   */
  draft(tokens: Int32Array, length: number, most: number, device?: DeviceDraft | null): Draft | null;
  /**
   * Returns how many tokens, at most `most`, the device shall draft behind the next draw: the number with the
   * highest goodput. To draft and verify a token takes `share` of a step. Absent: none.
   */
  wanted?(most: number, share: number): number;
}

/** Port: opens the drafters of an engine's sequences. */
export interface DraftSource {
  /** Prior acceptance rates by kind, in 0 … 1. */
  readonly priors: readonly number[];
  open(spec: SequenceSpec): Drafter;
  /** Learns from a sequence that has ended, drafted for or not. Absent: it learns nothing. */
  ended?(spec: SequenceSpec, tokens: Int32Array, length: number): void;
}

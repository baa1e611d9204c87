import type { TokenId } from "../../base/token.ts";
import type { DeviceDraft, SequenceSpec } from "../core.ts";

/** Tokens that may follow those of a sequence. */
export interface Draft {
  readonly tokens: readonly TokenId[];
  /**
   * Kind of each token, as its source numbers them: tokens of one kind are right about equally often, where
   * all drafted before them are.
   */
  readonly kinds: readonly number[];
  /** True if they are of the prediction that came with the request (`SequenceSpec.prediction`). Absent: false. */
  readonly isPredicted?: boolean;
}

/** Port: drafts the tokens of one sequence. */
export interface Drafter {
  /**
   * Drafts at most `most` ≥ 1 tokens that follow the first `length` of `tokens`. These only grow from call to
   * call. `device`: what the device has drafted there, if it has. Null: none.
   */
  draft(tokens: Int32Array, length: number, most: number, device?: DeviceDraft | null): Draft | null;
  /**
   * Number of tokens, at most `most`, that the device is to draft behind the next draw, if each takes `share` of
   * a step, and is checked. Absent: none.
   */
  wanted?(most: number, share: number): number;
}

/** Port: opens the drafters of an engine's sequences. */
export interface DraftSource {
  /** Share of right tokens by kind, in 0 … 1, before any was checked. */
  readonly priors: readonly number[];
  open(spec: SequenceSpec): Drafter;
  /** Learns from a sequence that has ended, drafted for or not. Absent: it learns nothing. */
  ended?(spec: SequenceSpec, tokens: Int32Array, length: number): void;
}

import type { TokenId } from "../../base/token.ts";
import type { SequenceSpec } from "../core.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";
import { type EarlierAnswers, EarlierTexts } from "./earlier.ts";
import { END, MATCH_MAX, type Match, SuffixText } from "./suffix-text.ts";

/** Upper bounds of the classes of match lengths. */
const LENGTHS = [2, 4, 8, 16, 32, MATCH_MAX] as const;
/** Latest tokens of a sequence that are indexed; the index restarts with them when it holds twice as many. */
const TOKENS_MAX = 65_536;
/** Match length from which no further text is searched. */
const ENOUGH = 16;
/** Bonus in tokens for a match in the client's prediction, which was sent for this very answer. */
const PREDICTED = 8;

/** Share of the matched positions that have the drafted token next: all of several, the only one, more than half, fewer. */
const [ALL, ONLY, MOST, FEW] = [0, 1, 2, 3] as const;
const SHARES = 4;
/** Text that a draft was found in: the sequence, the client's prediction, an earlier answer. */
const [OWN, PREDICTION, EARLIER] = [0, 1, 2] as const;
/** Prior acceptance rates by class of match length, for a token of the only matched position; guesses. */
const PRIOR_BY_LENGTH = [0.3, 0.45, 0.6, 0.75, 0.85, 0.9] as const;
/** Factors on these by agreement. */
const PRIOR_BY_SHARE = [1.1, 1, 0.75, 0.4] as const;
const PRIORS = PRIOR_BY_LENGTH.flatMap((length) =>
  PRIOR_BY_SHARE.map((share) => Math.min(0.95, length * share)),
);

type TextKind = typeof OWN | typeof PREDICTION | typeof EARLIER;

/** Places in one of the texts of a drafter. */
interface Found {
  readonly text: SuffixText;
  readonly kind: TextKind;
  readonly match: Match;
  /** Length that the match counts as. */
  readonly weight: number;
}

/**
 * Drafts without a model, by suffix matching (SuffixDecoding, arXiv:2411.04975; prompt lookup decoding is its
 * special case of one match in the prompt). It looks up the sequence's longest suffix in three texts: its own, its
 * client's prediction, and earlier answers of the same key. It drafts the tokens that followed the suffix there.
 *
 * Matched positions vote on each token; ties go to the longest match. The drafter indexes up to the last 131,072
 * tokens of the sequence.
 */
export class SuffixDrafter implements Drafter {
  readonly #earlier: EarlierAnswers | null;
  readonly #prediction: Int32Array;
  readonly #predicted: SuffixText | null;
  #own = new SuffixText();
  /** First token of its own text. */
  #begin = 0;
  /** Tokens of the sequence in the last call. */
  #length = 0;
  /** The position from which the last draft came; the next one is tried first. */
  #followed: { readonly text: SuffixText; readonly position: number } | null = null;

  /** `promptTokens`: length of the prompt, behind which the prediction begins. */
  constructor(earlier: EarlierAnswers | null = null, prediction: ArrayLike<TokenId> = [], promptTokens = 0) {
    this.#earlier = earlier;
    this.#prediction = Int32Array.from(prediction);
    this.#predicted = prediction.length > 0 ? new SuffixText() : null;
    if (this.#predicted === null) return;
    this.#length = promptTokens;
    this.#followed = { text: this.#predicted, position: 0 };
  }

  draft(tokens: Int32Array, length: number, most: number): Draft | null {
    if (length - this.#begin > 2 * TOKENS_MAX) {
      this.#begin = length - TOKENS_MAX;
      if (this.#followed?.text === this.#own) this.#followed = null;
      this.#own = new SuffixText();
    }
    const text = this.#begin === 0 ? tokens : tokens.subarray(this.#begin);
    const end = length - this.#begin;
    this.#predicted?.extend(this.#prediction, this.#prediction.length);
    this.#follow(tokens, length);
    // A long prompt takes several steps to index; until then the own text gives no drafts.
    const isIndexed = this.#own.extend(text, end);
    const found = this.#find(text, end, isIndexed);
    return found === null ? null : this.#vote(found, most);
  }

  /** Moves the position of the last draft along with the tokens that came since. */
  #follow(tokens: Int32Array, length: number): void {
    for (let i = this.#length; i < length && this.#followed !== null; i++) {
      const { text, position } = this.#followed;
      this.#followed = text.at(position) === tokens[i] ? { text, position: position + 1 } : null;
    }
    this.#length = length;
  }

  /** The longest match in any of the texts; null: there is none. */
  #find(tail: Int32Array, end: number, isIndexed: boolean): Found | null {
    let best: Found | null = null;
    const look = (text: SuffixText, kind: TextKind, more: number): void => {
      const followed = this.#followed?.text === text ? this.#followed.position : -1;
      const match = text.match(tail, end, followed);
      if (match === null) return;
      const weight = match.longest + more;
      if (best === null || weight > best.weight) best = { text, kind, match, weight };
    };
    const isEnough = (): boolean => best !== null && best.weight >= ENOUGH;
    if (this.#predicted !== null) look(this.#predicted, PREDICTION, PREDICTED);
    if (isIndexed && !isEnough()) look(this.#own, OWN, 0);
    for (const text of this.#earlier?.texts() ?? []) if (!isEnough()) look(text, EARLIER, 0);
    return best;
  }

  #vote({ text, kind, match, weight }: Found, most: number): Draft | null {
    const { longest } = match;
    const isNear = (_: number, index: number): boolean => 2 * match.lengths[index]! >= longest;
    let positions = match.positions.filter(isNear);
    const lengths = match.lengths.filter(isNear);
    let leader = positions[lengths.indexOf(longest)]!;
    const tokens: TokenId[] = [];
    const kinds: number[] = [];
    const tokenAt = (position: number): TokenId => {
      const at = position + tokens.length;
      // A match that overlaps the end of the sequence continues into the draft itself, as in a repeated text.
      return kind === OWN && at >= text.length ? tokens[at - text.length]! : text.at(at);
    };
    while (tokens.length < most) {
      const token = chosen(positions, leader, tokenAt);
      if (token === END) break;
      const agreeing = positions.filter((position) => tokenAt(position) === token);
      kinds.push(kindOf(kind, weight + tokens.length, shareOf(agreeing.length, positions.length)));
      if (!agreeing.includes(leader)) leader = agreeing[0]!;
      if (tokens.length === 0) this.#followed = { text, position: leader };
      tokens.push(token);
      positions = agreeing;
    }
    return tokens.length === 0 ? null : { tokens, kinds, isPredicted: kind === PREDICTION };
  }
}

/** The token at most positions; of equally many, the leader's or the first one's. */
function chosen(
  positions: readonly number[],
  leader: number,
  tokenAt: (position: number) => TokenId,
): TokenId {
  let best = tokenAt(leader);
  if (positions.length === 1) return best;
  const votes = new Map<TokenId, number>();
  for (const position of positions) votes.set(tokenAt(position), (votes.get(tokenAt(position)) ?? 0) + 1);
  for (const [token, count] of votes) if (count > votes.get(best)!) best = token;
  return best;
}

function shareOf(agreeing: number, all: number): number {
  if (all === 1) return ONLY;
  if (agreeing === all) return ALL;
  return 2 * agreeing > all ? MOST : FEW;
}

function kindOf(text: TextKind, length: number, share: number): number {
  let index = 0;
  while (index < LENGTHS.length - 1 && length > LENGTHS[index]!) index += 1;
  return text * PRIORS.length + index * SHARES + share;
}

/** Opens the source of one engine. */
export function openSuffixSource(): DraftSource {
  const earlier = new EarlierTexts();
  return {
    priors: [OWN, PREDICTION, EARLIER].flatMap(() => PRIORS),
    open: (spec: SequenceSpec) =>
      new SuffixDrafter(earlier.of(spec), spec.prediction, spec.promptTokens.length),
    ended: (spec, tokens, length) => {
      if (spec.draftTokensMax !== 0) earlier.add(spec, tokens.subarray(spec.promptTokens.length, length));
    },
  };
}

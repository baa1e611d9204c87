import type { TokenId } from "../../base/token.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";
import { GramIndex } from "./gram-index.ts";

/** Lengths of the suffixes that are looked up: the selective one first. */
const ORDERS = [6, 2] as const;
/** Most places that are compared per suffix, the latest first. */
const PLACES_MAX = 24;
/** Longest match that is told from a longer one. */
const MATCH_MAX = 64;
/** Upper bounds of the lengths of matches that count as equal. */
const LENGTHS = [2, 4, 8, 16, 32, MATCH_MAX] as const;
/** Most tokens that one call reads, for which it takes less than a millisecond: a long prompt takes several calls. */
const READ_MAX = 4096;
/** Tokens of a sequence that are looked up, the latest, and by how many more they grow. */
const TOKENS_MAX = 65_536;

/** Agreement of the places on a token. */
const [ALL, ONLY, MOST, FEW] = [0, 1, 2, 3] as const;
const SHARES = 4;
/** Shares of right tokens by length of the match where its only place has the token; first guesses. */
const PRIOR_BY_LENGTH = [0.3, 0.45, 0.6, 0.75, 0.85, 0.9] as const;
const PRIOR_BY_SHARE = [1.1, 1, 0.75, 0.4] as const;

/**
 * Drafts from the sequence's own text: what followed the longest suffix that the text has had before
 * (SuffixDecoding, arXiv:2411.04975; prompt lookup is its case of one place in the prompt).
 *
 * Two indexes of short suffixes take the place of a tree: they cost the same per token however long the text
 * is, and the places that they give are compared token by token. Where the longest matches disagree, most
 * places win, and of equally many the longest match. Memory is at most 32 bytes per token of the last 131,072.
 */
export class SuffixDrafter implements Drafter {
  #indexes = ORDERS.map((order) => new GramIndex(order));
  /** The tokens of the sequence from `#begin` on; a view, or the whole array. */
  #text: Int32Array = new Int32Array(0);
  #begin = 0;
  #length = 0;
  /** The place from which the last draft came; the next one is tried first. */
  #followed = -1;

  draft(tokens: Int32Array, length: number, most: number): Draft | null {
    const places = this.#read(tokens, length) ? this.#places() : null;
    return places === null ? null : this.#vote(places, most);
  }

  /** Reads the tokens that came since the last call. False: it has not read all yet. */
  #read(tokens: Int32Array, length: number): boolean {
    if (length - this.#begin > 2 * TOKENS_MAX) {
      this.#begin = length - TOKENS_MAX;
      this.#length = 0;
      this.#followed = -1;
      this.#indexes = ORDERS.map((order) => new GramIndex(order));
    }
    const text = this.#begin === 0 ? tokens : tokens.subarray(this.#begin);
    const end = Math.min(length - this.#begin, this.#length + READ_MAX);
    for (let i = this.#length; i < end && this.#followed >= 0; i++)
      this.#followed = text[this.#followed] === text[i] ? this.#followed + 1 : -1;
    // The place behind the last token is what is looked up.
    for (const index of this.#indexes) index.add(text, this.#length, end);
    this.#text = text;
    this.#length = end;
    return this.#begin + end === length;
  }

  /** Places whose tokens before match the last ones, with the length of the match; null: none. */
  #places(): { readonly places: number[]; readonly lengths: number[] } | null {
    const places: number[] = [];
    const lengths: number[] = [];
    const add = (place: number, least: number): void => {
      const length = this.#matchAt(place);
      if (length < least || places.includes(place)) return;
      places.push(place);
      lengths.push(length);
    };
    if (this.#followed >= 0) add(this.#followed, ORDERS[1]);
    for (const index of this.#indexes) {
      let place = index.first(this.#text, this.#length);
      for (let tried = 0; place >= 0 && tried < PLACES_MAX; tried++) {
        add(place, index.order);
        place = index.next(place);
      }
      if (places.length > 0) return { places, lengths };
    }
    return null;
  }

  /** Number of equal tokens before a place and at the end of the text. */
  #matchAt(place: number): number {
    const text = this.#text;
    const end = this.#length;
    const most = Math.min(place, MATCH_MAX);
    let length = 0;
    while (length < most && text[place - 1 - length] === text[end - 1 - length]) length += 1;
    return length;
  }

  #vote(found: { readonly places: number[]; readonly lengths: number[] }, most: number): Draft {
    const longest = Math.max(...found.lengths);
    const isNear = (index: number): boolean => 2 * found.lengths[index]! >= longest;
    let places = found.places.filter((_, index) => isNear(index));
    const lengths = found.lengths.filter((_, index) => isNear(index));
    const best = lengths.indexOf(longest);
    const tokens: TokenId[] = [];
    const kinds: number[] = [];
    let leader = places[best]!;
    const tokenAt = (place: number): TokenId => {
      // A place near the end goes on with the draft itself.
      const at = place + tokens.length;
      return at < this.#length ? this.#text[at]! : tokens[at - this.#length]!;
    };
    while (tokens.length < most) {
      const token = chosen(places, leader, tokenAt);
      const agreeing = places.filter((place) => tokenAt(place) === token);
      kinds.push(kindOf(longest + tokens.length, shareOf(agreeing.length, places.length)));
      if (tokens.length === 0) this.#followed = agreeing.includes(leader) ? leader : agreeing[0]!;
      if (!agreeing.includes(leader)) leader = agreeing[0]!;
      tokens.push(token);
      places = agreeing;
    }
    return { tokens, kinds };
  }
}

/** The token at most places; of equally many, the leader's or the first one's. */
function chosen(places: readonly number[], leader: number, tokenAt: (place: number) => TokenId): TokenId {
  let best = tokenAt(leader);
  if (places.length === 1) return best;
  const votes = new Map<TokenId, number>();
  for (const place of places) votes.set(tokenAt(place), (votes.get(tokenAt(place)) ?? 0) + 1);
  for (const [token, count] of votes) if (count > votes.get(best)!) best = token;
  return best;
}

function shareOf(agreeing: number, all: number): number {
  if (all === 1) return ONLY;
  if (agreeing === all) return ALL;
  return 2 * agreeing > all ? MOST : FEW;
}

function kindOf(length: number, share: number): number {
  let index = 0;
  while (index < LENGTHS.length - 1 && length > LENGTHS[index]!) index += 1;
  return index * SHARES + share;
}

/** Drafts from each sequence's own text. */
export const suffixSource: DraftSource = {
  priors: PRIOR_BY_LENGTH.flatMap((length) => PRIOR_BY_SHARE.map((share) => Math.min(0.95, length * share))),
  open: () => new SuffixDrafter(),
};

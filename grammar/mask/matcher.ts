import type { ThoughtsLimit } from "../constraint.ts";
import type { Grammar } from "../grammar.ts";
import { withRoom } from "../parser/lists.ts";
import { copyOf, noPlace, Parser, type ParseState, type Place } from "../parser/parser.ts";
import type { Job } from "./job.ts";
import type { Masks } from "./masks.ts";
import { closingToken, type ThoughtsState, thoughtsAfter, thoughtsAtStart } from "./thoughts.ts";
import { type Mask, tokenBytes } from "./vocabulary.ts";

/** State of a matcher after some tokens; it serves once. */
export interface MatcherMark {
  readonly length: number;
  readonly state: Place;
  readonly thoughts: ThoughtsState | null;
}

/** Sequence under a grammar, read token by token. Its state is a function of the accepted tokens alone. */
export class Matcher {
  readonly #parser: Parser;
  readonly #masks: Masks;
  readonly #limit: ThoughtsLimit | null;
  /** Accepted tokens, with spare room. */
  #tokens = new Int32Array(16);
  #length = 0;
  /** State of the text in its grammar, and in its reasoning section, if that is limited. */
  #state: Place;
  #thoughts: ThoughtsState | null;
  /** Scratch place, overwritten by each token. */
  #spare = noPlace();

  /** Starts at the beginning of a text. */
  constructor(parser: Parser, masks: Masks, limit: ThoughtsLimit | null = null) {
    this.#parser = parser;
    this.#masks = masks;
    this.#limit = limit;
    this.#state = copyOf(parser.start);
    this.#thoughts = limit === null ? null : thoughtsAtStart(limit);
  }

  /** Number of accepted tokens. */
  get length(): number {
    return this.#length;
  }

  /** True if the text may end here. */
  get mayEnd(): boolean {
    return this.#state.mayEnd;
  }

  /** True if the text must end here: no token can follow. */
  get mustEnd(): boolean {
    return this.#state.count === 0;
  }

  /**
   * Tokens that can continue the text, without an end token. Throws ConstraintError if the mask takes too
   * much work.
   */
  mask(): Mask {
    return this.#masks.maskOf(this.#parser, this.#state);
  }

  /** Mask if it is known, else the job that makes it; call again when it is done. */
  findMask(): Mask | Job<unknown> {
    return this.#masks.find(this.#parser, this.#state);
  }

  /**
   * Jump-forward tokens, `most` at most: forced by the grammar (forced.ts) or because reasoning has reached
   * its limit.
   */
  forcedTokens(most: number): number[] {
    const tokens: number[] = [];
    let [state, thoughts] = [this.#state, this.#thoughts];
    let [after, spare] = [this.#spare, noPlace()];
    for (;;) {
      const token = this.#closing(state, thoughts, after) ?? this.#masks.forcedOf(this.#parser, state);
      if (token === null || tokens.push(token) >= most) return tokens;
      this.#read(state, token, after);
      thoughts = this.#thoughtsAfter(thoughts, token);
      [state, after, spare] = [after, spare, after];
    }
  }

  /** Reads a token. False if the text cannot continue with it; then nothing has changed. */
  accept(token: number): boolean {
    if (!this.#read(this.#state, token, this.#spare)) return false;
    [this.#state, this.#spare] = [this.#spare, this.#state];
    this.#thoughts = this.#thoughtsAfter(this.#thoughts, token);
    this.#tokens = withRoom(this.#tokens, this.#length + 1);
    this.#tokens[this.#length++] = token;
    return true;
  }

  /** Token that must come because of the reasoning limit, or null. Overwrites `to`. */
  #closing(state: ParseState, thoughts: ThoughtsState | null, to: Place): number | null {
    const token = thoughts === null ? null : closingToken(thoughts, this.#limit!);
    return token === null || !this.#read(state, token, to) ? null : token;
  }

  /** Writes to `to` the state after the token. False if the text cannot continue with it. */
  #read(state: ParseState, token: number, to: Place): boolean {
    const { bytes, offsets } = this.#masks.vocabulary;
    const [from, end] = [offsets[token]!, offsets[token + 1]!];
    return from < end && this.#parser.read(state, bytes, from, end, to);
  }

  #thoughtsAfter(thoughts: ThoughtsState | null, token: number): ThoughtsState | null {
    if (thoughts === null) return null;
    return thoughtsAfter(thoughts, this.#limit!, token, tokenBytes(this.#masks.vocabulary, token));
  }

  /** Returns the state after the tokens so far, to which `goBack` returns. */
  mark(): MatcherMark {
    return { length: this.#length, state: copyOf(this.#state), thoughts: this.#thoughts };
  }

  /** Removes the tokens that were accepted since the mark. */
  goBack({ length, state, thoughts }: MatcherMark): void {
    this.#length = length;
    this.#state = state;
    this.#thoughts = thoughts;
  }

  /** Removes the last `count` tokens by reading all tokens before them again. */
  rollback(count: number): void {
    const again = new Matcher(this.#parser, this.#masks, this.#limit);
    for (let at = 0; at < this.#length - count; at++) again.accept(this.#tokens[at]!);
    this.#become(again);
  }

  /** Copy for another sequence with the same beginning. */
  fork(): Matcher {
    const other = new Matcher(this.#parser, this.#masks, this.#limit);
    other.#become(this);
    return other;
  }

  #become(other: Matcher): void {
    this.#tokens = other.#tokens.slice();
    this.#length = other.#length;
    this.#state = copyOf(other.#state);
    this.#thoughts = other.#thoughts;
  }
}

/** Parser for a grammar, over the expression table of `masks`. */
export function parserOf(grammar: Grammar, masks: Masks): Parser {
  return Parser.of(grammar, masks.regexes);
}

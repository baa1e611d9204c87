import type { ThoughtsLimit } from "../constraint.ts";
import type { Grammar } from "../grammar.ts";
import { withRoom } from "../parser/lists.ts";
import { copyOf, noPlace, Parser, type ParseState, type Place } from "../parser/parser.ts";
import type { Job } from "./job.ts";
import type { Masks } from "./masks.ts";
import { closingToken, type ThoughtsState, thoughtsAfter, thoughtsAtStart } from "./thoughts.ts";
import { type Mask, tokenBytes } from "./vocabulary.ts";

/**
 * One text under way under a grammar, token by token. Its state follows from the tokens alone: a matcher that is told the
 * same tokens is the same.
 */
export class Matcher {
  readonly #parser: Parser;
  readonly #masks: Masks;
  readonly #limit: ThoughtsLimit | null;
  /** The tokens that were read, and more room. */
  #tokens = new Int32Array(16);
  #length = 0;
  /** Where the text is in its grammar, and in its thoughts, if they have a limit. */
  #state: Place;
  #thoughts: ThoughtsState | null;
  /** Written anew by each token that is read. */
  #spare = noPlace();

  /** At the beginning of a text. */
  constructor(parser: Parser, masks: Masks, limit: ThoughtsLimit | null = null) {
    this.#parser = parser;
    this.#masks = masks;
    this.#limit = limit;
    this.#state = copyOf(parser.start);
    this.#thoughts = limit === null ? null : thoughtsAtStart(limit);
  }

  /** Tokens read. */
  get length(): number {
    return this.#length;
  }

  /** Whether the text may end here. */
  get mayEnd(): boolean {
    return this.#state.mayEnd;
  }

  /** Whether it must: nothing can follow. */
  get mustEnd(): boolean {
    return this.#state.count === 0;
  }

  /** Tokens with which the text can go on; none of them ends it. Throws ConstraintError when it takes too much work. */
  mask(): Mask {
    return this.#masks.maskOf(this.#parser, this.#state);
  }

  /** The same, if it is known; else work towards it: ask again when it is done. */
  findMask(): Mask | Job<unknown> {
    return this.#masks.find(this.#parser, this.#state);
  }

  /** Tokens that must follow, see forced.ts, or because thoughts have come to their limit: `most` of them at most. */
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

  /** Reads a token. False if the text cannot go on with it; then nothing has changed. */
  accept(token: number): boolean {
    if (!this.#read(this.#state, token, this.#spare)) return false;
    [this.#state, this.#spare] = [this.#spare, this.#state];
    this.#thoughts = this.#thoughtsAfter(this.#thoughts, token);
    this.#tokens = withRoom(this.#tokens, this.#length + 1);
    this.#tokens[this.#length++] = token;
    return true;
  }

  /** The token that must come because of the limit. `to`: written over. */
  #closing(state: ParseState, thoughts: ThoughtsState | null, to: Place): number | null {
    const token = thoughts === null ? null : closingToken(thoughts, this.#limit!);
    return token === null || !this.#read(state, token, to) ? null : token;
  }

  /** Writes to `to` where the text is after the token. False: it cannot go on with it. */
  #read(state: ParseState, token: number, to: Place): boolean {
    const { bytes, offsets } = this.#masks.vocabulary;
    const [from, end] = [offsets[token]!, offsets[token + 1]!];
    return from < end && this.#parser.read(state, bytes, from, end, to);
  }

  #thoughtsAfter(thoughts: ThoughtsState | null, token: number): ThoughtsState | null {
    if (thoughts === null) return null;
    return thoughtsAfter(thoughts, this.#limit!, token, tokenBytes(this.#masks.vocabulary, token));
  }

  /** Takes the last `count` tokens back: reads those before them again. */
  rollback(count: number): void {
    const again = new Matcher(this.#parser, this.#masks, this.#limit);
    for (let at = 0; at < this.#length - count; at++) again.accept(this.#tokens[at]!);
    this.#become(again);
  }

  /** Another text that has begun in the same way. */
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

/** A parser for a grammar whose masks are made by `masks`. */
export function parserOf(grammar: Grammar, masks: Masks): Parser {
  return Parser.of(grammar, masks.regexes);
}

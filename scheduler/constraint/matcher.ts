import type { ThoughtsLimit } from "../core.ts";
import type { Grammar } from "./grammar.ts";
import type { Job } from "./job.ts";
import type { Masks } from "./masks.ts";
import { Parser, type ParseState } from "./parser.ts";
import { closingToken, type ThoughtsState, thoughtsAfter, thoughtsAtStart } from "./thoughts.ts";
import { type Mask, tokenBytes } from "./vocabulary.ts";

/** Where a text is: in its grammar, and in its thoughts if they have a limit. */
interface TextState {
  readonly parse: ParseState;
  readonly thoughts: ThoughtsState | null;
}

/**
 * One text under way under a grammar, token by token. Its state follows from the tokens alone: a matcher that is told the
 * same tokens is the same.
 */
export class Matcher {
  readonly #parser: Parser;
  readonly #masks: Masks;
  readonly #limit: ThoughtsLimit | null;
  /** After 0, 1, 2 … tokens. */
  readonly #states: TextState[];

  private constructor(parser: Parser, masks: Masks, limit: ThoughtsLimit | null, states: TextState[]) {
    this.#parser = parser;
    this.#masks = masks;
    this.#limit = limit;
    this.#states = states;
  }

  /** At the beginning of a text. */
  static of(parser: Parser, masks: Masks, limit: ThoughtsLimit | null = null): Matcher {
    const thoughts = limit === null ? null : thoughtsAtStart(limit);
    return new Matcher(parser, masks, limit, [{ parse: parser.start, thoughts }]);
  }

  /** Tokens read. */
  get length(): number {
    return this.#states.length - 1;
  }

  /** Whether the text may end here. */
  get mayEnd(): boolean {
    return this.#state.parse.mayEnd;
  }

  /** Whether it must: nothing can follow. */
  get mustEnd(): boolean {
    return this.#state.parse.threads.length === 0;
  }

  /** Tokens with which the text can go on; none of them ends it. Throws ConstraintError when it takes too much work. */
  mask(): Mask {
    return this.#masks.maskOf(this.#parser, this.#state.parse);
  }

  /** The same, if it is known; else work towards it: ask again when it is done. */
  findMask(): Mask | Job<unknown> {
    return this.#masks.find(this.#parser, this.#state.parse);
  }

  /** Tokens that must follow, see forced.ts, or because thoughts have come to their limit: `most` of them at most. */
  forcedTokens(most: number): number[] {
    const tokens: number[] = [];
    let state = this.#state;
    while (tokens.length < most) {
      const token = this.#closing(state) ?? this.#masks.forcedOf(this.#parser, state.parse);
      if (token === null) break;
      tokens.push(token);
      state = this.#after(state, token)!;
    }
    return tokens;
  }

  /** Reads a token. False if the text cannot go on with it; then nothing has changed. */
  accept(token: number): boolean {
    const state = this.#after(this.#state, token);
    if (state !== null) this.#states.push(state);
    return state !== null;
  }

  /** The token that must come because of the limit. */
  #closing(state: TextState): number | null {
    const token = this.#limit === null ? null : closingToken(state.thoughts!, this.#limit);
    return token === null || this.#after(state, token) === null ? null : token;
  }

  #after({ parse, thoughts }: TextState, token: number): TextState | null {
    const bytes = tokenBytes(this.#masks.vocabulary, token);
    let after: ParseState | null = bytes.length === 0 ? null : parse;
    for (let at = 0; at < bytes.length && after !== null; at++) after = this.#parser.next(after, bytes[at]!);
    if (after === null) return null;
    if (thoughts === null) return { parse: after, thoughts };
    return { parse: after, thoughts: thoughtsAfter(thoughts, this.#limit!, token, bytes) };
  }

  /** Takes the last `count` tokens back. */
  rollback(count: number): void {
    this.#states.length -= count;
  }

  /** Another text that has begun in the same way. */
  fork(): Matcher {
    return new Matcher(this.#parser, this.#masks, this.#limit, [...this.#states]);
  }

  get #state(): TextState {
    return this.#states.at(-1)!;
  }
}

/** A parser for a grammar whose masks are made by `masks`. */
export function parserOf(grammar: Grammar, masks: Masks): Parser {
  return Parser.of(grammar, masks.regexes);
}

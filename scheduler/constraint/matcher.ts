import type { Grammar } from "./grammar.ts";
import type { Job } from "./job.ts";
import type { Masks } from "./masks.ts";
import { Parser, type ParseState } from "./parser.ts";
import { type Mask, tokenBytes } from "./vocabulary.ts";

/**
 * One text under way under a grammar, token by token. Its state follows from the tokens alone: a matcher that is told the
 * same tokens is the same.
 */
export class Matcher {
  readonly #parser: Parser;
  readonly #masks: Masks;
  /** After 0, 1, 2 … tokens. */
  readonly #states: ParseState[];

  private constructor(parser: Parser, masks: Masks, states: ParseState[]) {
    this.#parser = parser;
    this.#masks = masks;
    this.#states = states;
  }

  /** At the beginning of a text. */
  static of(parser: Parser, masks: Masks): Matcher {
    return new Matcher(parser, masks, [parser.start]);
  }

  /** Tokens read. */
  get length(): number {
    return this.#states.length - 1;
  }

  /** Whether the text may end here. */
  get mayEnd(): boolean {
    return this.#state.mayEnd;
  }

  /** Whether it must: nothing can follow. */
  get mustEnd(): boolean {
    return this.#state.threads.length === 0;
  }

  /** Tokens with which the text can go on; none of them ends it. Throws ConstraintError when it takes too much work. */
  mask(): Mask {
    return this.#masks.maskOf(this.#parser, this.#state);
  }

  /** The same, if it is known; else the work for it. */
  findMask(): Mask | Job<Mask> {
    return this.#masks.find(this.#parser, this.#state);
  }

  /** Tokens that must follow, see forced.ts: `most` of them at most. */
  forcedTokens(most: number): number[] {
    const tokens: number[] = [];
    let state = this.#state;
    while (tokens.length < most) {
      const token = this.#masks.forcedOf(this.#parser, state);
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

  #after(before: ParseState, token: number): ParseState | null {
    const bytes = tokenBytes(this.#masks.vocabulary, token);
    let state: ParseState | null = bytes.length === 0 ? null : before;
    for (let at = 0; at < bytes.length && state !== null; at++) state = this.#parser.next(state, bytes[at]!);
    return state;
  }

  /** Takes the last `count` tokens back. */
  rollback(count: number): void {
    this.#states.length -= count;
  }

  /** Another text that has begun in the same way. */
  fork(): Matcher {
    return new Matcher(this.#parser, this.#masks, [...this.#states]);
  }

  get #state(): ParseState {
    return this.#states.at(-1)!;
  }
}

/** A parser for a grammar whose masks are made by `masks`. */
export function parserOf(grammar: Grammar, masks: Masks): Parser {
  return Parser.of(grammar, masks.regexes);
}

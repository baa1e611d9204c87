import type { Budget } from "./error.ts";
import type { LexState } from "./lexer.ts";
import { type Looping, loopingOf } from "./looping.ts";
import type { Parser, ParseSet, ParseState, Thread } from "./parser.ts";
import type { Mask, Trie } from "./vocabulary.ts";

/** Nodes below a node that make it worth finding out which of them need not be walked. */
const LOOPING_NODES_MIN = 256;

/** A node of the trie whose children are being walked, with what the text may be there. Used again for each depth. */
interface Frame {
  /** The next child, and the end of them all. */
  child: number;
  end: number;
  /** One thread; or several, and then these two are of no account. */
  set: ParseSet;
  lex: LexState;
  threads: ParseState | null;
  /** Of several threads; undefined: not known yet. */
  looping: Looping | null | undefined;
}

/**
 * A walk of a trie along which a parser goes: the tokens that it meets are those that may come next. It is cut short where
 * the work for it is used up, and goes on from there.
 */
export class MaskWalk {
  readonly #parser: Parser;
  readonly #trie: Trie;
  readonly #mask: Mask;
  readonly #budget: Budget;
  readonly #frames: Frame[] = [];
  /** By state. */
  readonly #looping = new Map<string, Looping | null>();
  #depth = -1;

  /** Sets in the mask the tokens along which the thread goes on. */
  constructor(parser: Parser, trie: Trie, mask: Mask, budget: Budget, { set, lex }: Thread) {
    this.#parser = parser;
    this.#trie = trie;
    this.#mask = mask;
    this.#budget = budget;
    this.#enter(0, set, lex, null);
  }

  /** Walks until its budget is paused. False: there is more to walk. */
  run(): boolean {
    while (this.#depth >= 0) {
      const frame = this.#frames[this.#depth]!;
      const { child } = frame;
      if (child >= frame.end) {
        this.#depth -= 1;
        continue;
      }
      if (this.#budget.isPaused) return false;
      frame.child = this.#trie.ends[child]!;
      if (frame.threads === null) this.#follow(frame, child);
      else if (this.#loopingOf(frame)?.isWhole(child) === true) this.#allowBelow(child);
      else this.#followAll(frame.threads, child);
    }
    return true;
  }

  /** One terminal, or several, under way since one set. */
  #follow({ set, lex }: Frame, child: number): void {
    this.#budget.spend(1);
    const { lexer } = this.#parser;
    const next = lexer.next(lex, this.#trie.bytes[child]!);
    if (next === null) return;
    this.#allow(child);
    if (this.#trie.ends[child] === child + 1) return;
    if (next.ends.terminals.length === 0) {
      this.#enter(child, set, next, null);
      return;
    }
    const after = this.#parser.after(set, next.ends);
    const goesOn = lexer.goesOn(next);
    if (goesOn && after.lex !== null) {
      const threads = [
        { set, lex: next },
        { set: after, lex: after.lex },
      ];
      this.#enter(child, set, next, { threads, mayEnd: false });
    } else if (goesOn) this.#enter(child, set, next, null);
    else if (after.lex !== null) this.#enter(child, after, after.lex, null);
  }

  #followAll(state: ParseState, child: number): void {
    this.#budget.spend(state.threads.length);
    const next = this.#parser.next(state, this.#trie.bytes[child]!);
    if (next === null) return;
    this.#allow(child);
    if (this.#trie.ends[child] === child + 1) return;
    const [only, another] = next.threads;
    if (only !== undefined) this.#enter(child, only.set, only.lex, another === undefined ? null : next);
  }

  #enter(node: number, set: ParseSet, lex: LexState, threads: ParseState | null): void {
    this.#depth += 1;
    const [child, end] = [node + 1, this.#trie.ends[node]!];
    const frame = this.#frames[this.#depth];
    if (frame === undefined) this.#frames.push({ child, end, set, lex, threads, looping: undefined });
    else {
      frame.child = child;
      frame.end = end;
      frame.set = set;
      frame.lex = lex;
      frame.threads = threads;
      frame.looping = undefined;
    }
  }

  /** Where the frame's state comes back to itself, if much of the vocabulary is below its node. */
  #loopingOf(frame: Frame): Looping | null {
    if (frame.looping === undefined) {
      const state = frame.threads!;
      const key = state.threads.map(({ set, lex }) => `${set.id}:${lex.id}`).join();
      let looping = this.#looping.get(key);
      if (looping === undefined && frame.end - frame.child >= LOOPING_NODES_MIN) {
        this.#budget.spend(256);
        looping = loopingOf(this.#parser, state, this.#trie);
        this.#looping.set(key, looping);
      }
      frame.looping = looping ?? null;
    }
    return frame.looping;
  }

  /** The node's tokens and all below it. */
  #allowBelow(node: number): void {
    const { tokens, firstTokens, ends } = this.#trie;
    for (let at = firstTokens[node]!; at < firstTokens[ends[node]!]!; at++) {
      const token = tokens[at]!;
      this.#mask[token >>> 5]! |= 1 << (token & 31);
    }
  }

  /** The node's own tokens. */
  #allow(node: number): void {
    const { tokens, firstTokens } = this.#trie;
    for (let at = firstTokens[node]!; at < firstTokens[node + 1]!; at++) {
      const token = tokens[at]!;
      this.#mask[token >>> 5]! |= 1 << (token & 31);
    }
  }
}

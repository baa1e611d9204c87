import type { Budget } from "../error.ts";
import type { LexState } from "../parser/lexer.ts";
import { type Looping, loopingOf } from "../parser/looping.ts";
import type { ParseSet } from "../parser/parse-set.ts";
import { addThread, noPlace, type Parser, type Place } from "../parser/parser.ts";
import type { Mask, Trie } from "./vocabulary.ts";

/** Nodes below a node from which on it pays to look for bytes that loop. */
const LOOPING_NODES_MIN = 256;

/** Trie node whose children are being walked, with the parser's place there. Reused at each depth. */
interface Frame {
  /** Next child, and the end of all children. */
  child: number;
  end: number;
  readonly place: Place;
  /** Bytes on which a place with several threads loops; null if they are few, undefined if not known yet. */
  looping: Looping | null | undefined;
}

/**
 * Walk of a trie in step with a parser: the tokens that it reaches are allowed next. It stops where its
 * budget is paused, and resumes there.
 */
export class MaskWalk {
  readonly #parser: Parser;
  readonly #trie: Trie;
  readonly #mask: Mask;
  readonly #budget: Budget;
  readonly #frames: Frame[];
  /** Looping bytes of each state. */
  readonly #looping = new Map<string, Looping | null>();
  #depth = 0;

  /** Sets in the mask the tokens that continue the terminals under way (`lex`) since the set. */
  constructor(parser: Parser, trie: Trie, mask: Mask, budget: Budget, set: ParseSet, lex: LexState) {
    this.#parser = parser;
    this.#trie = trie;
    this.#mask = mask;
    this.#budget = budget;
    const place = noPlace();
    addThread(place, set, lex);
    this.#frames = [{ child: 1, end: trie.ends[0]!, place, looping: undefined }];
  }

  /** Walks until its budget is paused. False if more is left to walk. */
  run(): boolean {
    const { bytes, ends } = this.#trie;
    const parser = this.#parser;
    while (this.#depth >= 0) {
      const frame = this.#frames[this.#depth]!;
      const { child, place } = frame;
      if (child >= frame.end) {
        this.#depth -= 1;
        continue;
      }
      if (this.#budget.isPaused) return false;
      const end = ends[child]!;
      if (place.count > 1 && this.#loopingOf(frame)?.isWhole(child) === true) {
        this.#allow(child, end);
        frame.child = end;
        continue;
      }
      this.#budget.spend(place.count);
      if (end === child + 1) {
        if (parser.goesOn(place, bytes[child]!)) this.#allow(child, end);
        frame.child = end;
        continue;
      }
      const below = this.#below();
      const goesOn = parser.follow(place, bytes[child]!, below.place);
      frame.child = end; // only now: an interrupted step is repeated
      if (!goesOn) continue;
      this.#allow(child, child + 1);
      if (below.place.count === 0) continue;
      below.child = child + 1;
      below.end = end;
      below.looping = undefined;
      this.#depth += 1;
    }
    return true;
  }

  /** Frame one level deeper. */
  #below(): Frame {
    let frame = this.#frames[this.#depth + 1];
    if (frame === undefined) {
      frame = { child: 0, end: 0, place: noPlace(), looping: undefined };
      this.#frames.push(frame);
    }
    return frame;
  }

  /** Bytes on which the frame's place loops, if a large part of the vocabulary is below its node. */
  #loopingOf(frame: Frame): Looping | null {
    if (frame.looping === undefined) frame.looping = this.#findLooping(frame);
    return frame.looping;
  }

  #findLooping({ place, child, end }: Frame): Looping | null {
    const { sets, lexes, count } = place;
    let key = "";
    for (let i = 0; i < count; i++) key += `${sets[i]!.id}:${lexes[i]},`;
    let looping = this.#looping.get(key);
    if (looping === undefined && end - child >= LOOPING_NODES_MIN) {
      this.#budget.spend(256);
      looping = loopingOf(this.#parser, place, this.#trie);
      this.#looping.set(key, looping);
    }
    return looping ?? null;
  }

  /** Allows the tokens of nodes [from, to). */
  #allow(from: number, to: number): void {
    const { tokens, firstTokens } = this.#trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.#mask[token >>> 5]! |= 1 << (token & 31);
    }
  }
}

import type { Budget } from "../error.ts";
import type { LexState } from "../parser/lexer.ts";
import { type Looping, loopingOf } from "../parser/looping.ts";
import type { ParseSet } from "../parser/parse-set.ts";
import { addThread, noPlace, type Parser, type Place } from "../parser/parser.ts";
import type { Mask, Trie } from "./vocabulary.ts";

/** Nodes below a node that make it worth finding out which of them need not be walked. */
const LOOPING_NODES_MIN = 256;

/** A node of the trie whose children are being walked, with what the text may be there. Used again for each depth. */
interface Frame {
  /** The next child, and the end of them all. */
  child: number;
  end: number;
  readonly place: Place;
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
  readonly #frames: Frame[];
  /** By state. */
  readonly #looping = new Map<string, Looping | null>();
  #depth = 0;

  /** Sets in the mask the tokens along which terminals go on that are under way since the set. */
  constructor(parser: Parser, trie: Trie, mask: Mask, budget: Budget, set: ParseSet, lex: LexState) {
    this.#parser = parser;
    this.#trie = trie;
    this.#mask = mask;
    this.#budget = budget;
    const place = noPlace();
    addThread(place, set, lex);
    this.#frames = [{ child: 1, end: trie.ends[0]!, place, looping: undefined }];
  }

  /** Walks until its budget is paused. False: there is more to walk. */
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
      frame.child = end; // not before: what was broken off is begun again
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

  /** The frame of the depth below. */
  #below(): Frame {
    let frame = this.#frames[this.#depth + 1];
    if (frame === undefined) {
      frame = { child: 0, end: 0, place: noPlace(), looping: undefined };
      this.#frames.push(frame);
    }
    return frame;
  }

  /** Where the frame's state comes back to itself, if much of the vocabulary is below its node. */
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

  /** The tokens of nodes [from, to). */
  #allow(from: number, to: number): void {
    const { tokens, firstTokens } = this.#trie;
    const end = firstTokens[to]!;
    for (let at = firstTokens[from]!; at < end; at++) {
      const token = tokens[at]!;
      this.#mask[token >>> 5]! |= 1 << (token & 31);
    }
  }
}

import type { Budget } from "../error.ts";
import { AlwaysOpen } from "../parser/always-open.ts";
import { type Regex, Regexes } from "../regex/regexes.ts";
import { freeStrings } from "../regex/text.ts";
import { Loops } from "./free-parts.ts";
import { again, type Pieces } from "./job.ts";
import { type MaskMemory, remember } from "./mask-memory.ts";
import { CHARACTERS_MAX, type StringMasks, type StringTokens, type TokenSet } from "./string-tokens.ts";
import { StringWalk } from "./string-walk.ts";

/** Number of characters that a string may still have. `max` may be Infinity. */
interface Limits {
  readonly min: number;
  readonly max: number;
}

/**
 * `counted`: the rest of a string that is limited only in its number of characters. `broad`: the rest of
 * another string that many tokens continue.
 */
export type StringKind = "counted" | "broad" | "other";

/** Expressions whose tokens are remembered, per token set. */
const WALKED_MAX = 128;
/** An expression is broad if more than one in this many tokens has a first byte that continues it. */
const BROAD = 16;
/** Tokens per step of work spent on finding out whether a walk can be skipped. */
const OPEN = 8;
/**
 * States for which a walk's table has room at first. A walk with more copies it to a larger table, which is
 * not reused.
 */
const TABLE_STATES = 1024;

/**
 * Expressions for JSON strings, and the tokens that continue them. Tokens that stay inside a string need no
 * parser. One walk serves every position of a text at which no length limit can run out within a token.
 */
export class FreeString {
  readonly regexes: Regexes;
  readonly tokens: StringTokens;
  readonly #memory: MaskMemory;
  /** Table of a finished walk, to be reused by the next. */
  #spareTable: Int32Array | null = null;
  /** Expression of the inside of a string and its closing quote. */
  readonly #free: Regex;
  readonly #character: Regex;
  readonly #quote: Regex;
  readonly #alwaysOpen: AlwaysOpen;
  readonly #loops: Loops;
  readonly #kinds = new Map<Regex, StringKind>();
  /** Remembered tokens of each expression, least recently used first. */
  readonly #walked = new Map<TokenSet, Map<Regex, StringMasks | null>>();

  /** `room` is the number of expressions to reserve memory for. */
  constructor(tokens: StringTokens, memory: MaskMemory, room: number) {
    this.regexes = new Regexes(room);
    this.tokens = tokens;
    this.#memory = memory;
    const strings = freeStrings(this.regexes);
    const { free, character, quote } = strings;
    this.#free = free;
    this.#character = character;
    this.#quote = quote;
    this.#alwaysOpen = new AlwaysOpen(this.regexes, strings);
    this.#loops = new Loops(this.regexes, free);
  }

  /** Limits of a string that is restricted only in its number of characters; null for other expressions. */
  limitsOf(rest: Regex): Limits | null {
    if (rest === this.#free) return { min: 0, max: Number.POSITIVE_INFINITY };
    const shape = this.regexes.shapeOf(rest);
    if (shape.kind !== "cat" || shape.tail !== this.#quote) return null;
    const head = this.regexes.shapeOf(shape.head);
    if (head.kind !== "repeat" || head.of !== this.#character) return null;
    const { longest } = this.tokens;
    const isBounded = head.max < Number.POSITIVE_INFINITY;
    const isCounted = head.min <= CHARACTERS_MAX && (head.max < CHARACTERS_MAX || !isBounded);
    if (longest === CHARACTERS_MAX && !isCounted) return null;
    const max = head.max >= longest ? Number.POSITIVE_INFINITY : head.max;
    return { min: Math.min(head.min, longest + 1), max };
  }

  /** Cheapest way to find the tokens that continue an expression. */
  kindOf(rest: Regex): StringKind {
    let kind = this.#kinds.get(rest);
    if (kind === undefined) {
      if (this.limitsOf(rest) !== null) kind = "counted";
      else kind = this.#isBroad(rest) && this.endsWithQuote(rest) ? "broad" : "other";
      this.#kinds.set(rest, kind);
    }
    return kind;
  }

  #isBroad(rest: Regex): boolean {
    let going = 0;
    let all = 0;
    for (const { trie, meanings } of this.tokens.open) {
      for (let child = 1; child < trie.bytes.length; child = trie.ends[child]!) {
        const tokens = trie.firstTokens[trie.ends[child]!]! - trie.firstTokens[child]!;
        all += tokens;
        const goesOn = (byte: number): boolean => this.regexes.derivative(rest, byte) !== this.regexes.empty;
        if (meanings[trie.bytes[child]!]!.some(goesOn)) going += tokens;
      }
    }
    return BROAD * going > all;
  }

  /** True if every match is the rest of a string. */
  endsWithQuote(rest: Regex): boolean {
    const shape = this.regexes.shapeOf(rest);
    if (shape.kind === "cat") return this.endsWithQuote(shape.tail);
    if (shape.kind === "alt") return shape.parts.every((part) => this.endsWithQuote(part));
    if (shape.kind === "and") return shape.parts.some((part) => this.endsWithQuote(part));
    return rest === this.#quote;
  }

  /**
   * Tokens of the set that continue a broad expression. Null if a token's closing quote is elsewhere than in
   * a free string, as after a backslash or before the opening quote.
   */
  *tokensOf(set: TokenSet, rest: Regex, budget: Budget): Pieces<StringMasks | null> {
    let walked = this.#walked.get(set);
    if (walked === undefined) {
      walked = new Map();
      this.#walked.set(set, walked);
    }
    const clamped = yield* again(() => this.regexes.clamped(rest, set.trie.height));
    const isOpen =
      set.parts !== null && (yield* this.#alwaysOpen.has(clamped, budget, set.trie.tokens.length / OPEN));
    if (isOpen) return set.all;
    let found = walked.get(clamped);
    if (found === undefined) found = yield* this.#walk(set, clamped, budget);
    const gone = remember(walked, clamped, found, WALKED_MAX) ?? null;
    if (gone !== null) this.#memory.giveBack(gone.inside, gone.beyond);
    return found;
  }

  *#walk(set: TokenSet, rest: Regex, budget: Budget): Pieces<StringMasks | null> {
    const inside = this.#memory.copyOf(set.all.inside);
    const beyond = this.#memory.none();
    const masks = { inside, beyond };
    const { quoteEnd } = this.tokens;
    const table = this.#spareTable ?? new Int32Array(TABLE_STATES * 256);
    this.#spareTable = null;
    const walk = new StringWalk(this.regexes, this.#loops, set, quoteEnd, rest, masks, budget, table);
    while (!(yield* again(() => walk.run()))) yield;
    if (walk.table.length === TABLE_STATES * 256) this.#spareTable = walk.table;
    if (walk.isAlike) return masks;
    this.#memory.giveBack(inside, beyond);
    return null;
  }
}

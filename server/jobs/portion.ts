/** Lines of a job that are put in order together: read, tokenised, and grouped by their prefixes. */

import type { TokenId } from "../../base/token.ts";
import type { FeedItem, FeedItems } from "../../scheduler/job/feed.ts";
import { orderOf } from "../../scheduler/job/groups.ts";
import { oneLevel } from "../../scheduler/job/one-level.ts";
import { PrefixTree, type PromptTable, TREE_PROMPTS_MAX } from "../../scheduler/job/prefix-tree.ts";
import type { LinePrompt } from "./door.ts";
import { Int32List } from "./int32-list.ts";

/** Of a prompt a number is kept for each so many tokens, the last block has what is left. Prefixes are as long as a page's tokens or longer
 *  before they are worth a place in the order (decisions/0069). */
export const BLOCK_TOKENS = 16;
/** Blocks of one portion, at most, but for its last line's: 64 MiB, more than 200 MiB of text have, where each byte is a token at most. */
const PORTION_BLOCKS = 2 ** 24;

/** A line in its place. */
export interface PlacedLine extends FeedItem {
  /** Its number in the file. */
  readonly line: number;
}

/** Lines in the order in which they run: twelve bytes each, so that memory does not grow with the file; the rest is in the store. */
export class Portion implements FeedItems {
  readonly #lines = new Int32List();
  readonly #newTokens = new Int32List();
  readonly #tokensMax = new Int32List();

  get length(): number {
    return this.#lines.length;
  }

  at(place: number): PlacedLine | undefined {
    if (place >= this.length) return undefined;
    return {
      line: this.#lines.at(place),
      newTokens: this.#newTokens.at(place),
      tokensMax: this.#tokensMax.at(place),
    };
  }

  push({ line, newTokens, tokensMax }: PlacedLine): void {
    this.#lines.push(line);
    this.#newTokens.push(newTokens);
    this.#tokensMax.push(tokensMax);
  }
}

/** Prompts whose prefixes may be shared. */
class KeyedPrompts {
  readonly #blocks = new Int32List();
  /** Where each prompt's blocks begin, and where the last one's end. */
  readonly #from = new Int32List();
  readonly #lines = new Int32List();
  readonly #tokens = new Int32List();
  readonly #tokensMax = new Int32List();

  constructor() {
    this.#from.push(0);
  }

  /** Returns how many blocks it has. */
  add(line: number, { tokens, answerTokensMax }: LinePrompt): number {
    const before = this.#blocks.length;
    for (let at = 0; at < tokens.length; at += BLOCK_TOKENS) this.#blocks.push(blockOf(tokens, at));
    this.#from.push(this.#blocks.length);
    this.#lines.push(line);
    this.#tokens.push(tokens.length);
    this.#tokensMax.push(answerTokensMax);
    return this.#blocks.length - before;
  }

  /** Adds them to a portion. */
  place(portion: Portion, answerTokens: number): void {
    const table: PromptTable = { tokens: this.#blocks.values, from: this.#from.values };
    const tree = new PrefixTree(table);
    const answerOf = (prompt: number): number => Math.min(this.#tokensMax.at(prompt), answerTokens);
    const { prompts, sharedTokens: sharedBlocks } = orderOf(tree, oneLevel(tree), answerOf);
    prompts.forEach((prompt, place) => {
      const shared = sharedBlocks[place]! * BLOCK_TOKENS;
      portion.push({
        line: this.#lines.at(prompt),
        newTokens: Math.max(0, this.#tokens.at(prompt) - shared),
        tokensMax: this.#tokensMax.at(prompt),
      });
    });
  }
}

/** Gathers prompts, and puts their lines in order. */
export class PortionBuilder {
  readonly #byKey = new Map<string, KeyedPrompts>();
  #lines = 0;
  #blocks = 0;

  get isFull(): boolean {
    return this.#blocks >= PORTION_BLOCKS || this.#lines >= TREE_PROMPTS_MAX;
  }

  get isEmpty(): boolean {
    return this.#lines === 0;
  }

  add(line: number, prompt: LinePrompt): void {
    let prompts = this.#byKey.get(prompt.cacheKey);
    if (prompts === undefined) {
      prompts = new KeyedPrompts();
      this.#byKey.set(prompt.cacheKey, prompts);
    }
    this.#lines += 1;
    this.#blocks += prompts.add(line, prompt);
  }

  /** Lines in the order in which they run. `answerTokens`: what an answer is expected to have. */
  ordered(answerTokens: number): Portion {
    const portion = new Portion();
    for (const prompts of this.#byKey.values()) prompts.place(portion, answerTokens);
    return portion;
  }
}

/** A number for the block of a prompt that begins at a token. Different blocks with the same number, one pair in four thousand million, cost a
 *  place in the order, and nothing else. */
function blockOf(tokens: ArrayLike<TokenId>, from: number): number {
  const end = Math.min(from + BLOCK_TOKENS, tokens.length);
  let mixed = end - from;
  for (let at = from; at < end; at++) {
    mixed = Math.imul(mixed ^ tokens[at]!, 0x9e3779b1);
    mixed ^= mixed >>> 15;
  }
  return mixed;
}

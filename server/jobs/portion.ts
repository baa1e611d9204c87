/** Portions of a job: lines that are read, tokenised, and grouped by their prefixes together. */

import type { TokenId } from "../../base/token.ts";
import type { BatchItem, BatchItems } from "../../scheduler/batch/batch-admission.ts";
import { orderOf } from "../../scheduler/batch/groups.ts";
import { oneLevel } from "../../scheduler/batch/one-level.ts";
import { PrefixTree, type PromptTable, TREE_PROMPTS_MAX } from "../../scheduler/batch/prefix-tree.ts";
import type { PreparedLine } from "./door.ts";
import { Int32List } from "./int32-list.ts";

/** Part of a prepared line on which the order depends. */
type LinePrompt = Pick<PreparedLine, "tokens" | "cacheKey" | "answerTokensMax">;

/**
 * Tokens per block: a prompt is stored as one 32-bit hash per block, the last of which may be partial.
 * Prefixes shorter than a page are not worth a place in the order (decisions/0069).
 */
export const BLOCK_TOKENS = 16;
/**
 * Maximum blocks of one portion, plus the last line's: 64 MiB of hashes, enough for 200 MiB of text at one
 * byte per token.
 */
const PORTION_BLOCKS = 2 ** 24;

/** Line with its place in the order. */
export interface PlacedLine extends BatchItem {
  /** Number of the line in the file. */
  readonly line: number;
}

/**
 * Lines in the order in which they run. Twelve bytes each, so memory stays small for large files; the store
 * has the rest.
 */
export class Portion implements BatchItems {
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

/** Prompts with one cache key, whose prefixes may be shared. */
class KeyedPrompts {
  readonly #blocks = new Int32List();
  /** Index of each prompt's first block, and the end of the last one's. */
  readonly #from = new Int32List();
  readonly #lines = new Int32List();
  readonly #tokens = new Int32List();
  readonly #tokensMax = new Int32List();

  constructor() {
    this.#from.push(0);
  }

  /** Adds a prompt and returns its number of blocks. */
  add(line: number, { tokens, answerTokensMax }: LinePrompt): number {
    const before = this.#blocks.length;
    for (let at = 0; at < tokens.length; at += BLOCK_TOKENS) this.#blocks.push(blockOf(tokens, at));
    this.#from.push(this.#blocks.length);
    this.#lines.push(line);
    this.#tokens.push(tokens.length);
    this.#tokensMax.push(answerTokensMax);
    return this.#blocks.length - before;
  }

  /** Appends the prompts to a portion in order. */
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

/** Collects prompts and orders their lines. */
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

  /** Lines in the order in which they run. `answerTokens`: expected tokens of an answer. */
  ordered(answerTokens: number): Portion {
    const portion = new Portion();
    for (const prompts of this.#byKey.values()) prompts.place(portion, answerTokens);
    return portion;
  }
}

/**
 * Hash of the block of a prompt that begins at a token. A collision (one in 2^32 per pair) only costs a place
 * in the order.
 */
function blockOf(tokens: ArrayLike<TokenId>, from: number): number {
  const end = Math.min(from + BLOCK_TOKENS, tokens.length);
  let mixed = end - from;
  for (let at = from; at < end; at++) {
    mixed = Math.imul(mixed ^ tokens[at]!, 0x9e3779b1);
    mixed ^= mixed >>> 15;
  }
  return mixed;
}

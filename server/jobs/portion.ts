/** Lines of a job that are put in order together: read, tokenised, and grouped by their prefixes. */

import type { FeedItem } from "../../scheduler/job/feed.ts";
import { orderOf } from "../../scheduler/job/groups.ts";
import { oneLevel } from "../../scheduler/job/one-level.ts";
import { PrefixTree, TREE_PROMPTS_MAX } from "../../scheduler/job/prefix-tree.ts";
import type { LinePrompt } from "./door.ts";
import type { LineRecord } from "./records.ts";

/** Tokens of one portion, at most, but for its last line's: 128 MiB while it is put in order. */
export const PORTION_TOKENS = 2 ** 25;

/** A line in its place. */
export interface PlacedLine extends FeedItem {
  readonly line: LineRecord;
}

/** Gathers prompts, and puts their lines in order. */
export class PortionBuilder {
  #tokens = new Int32Array(2 ** 16);
  #length = 0;
  readonly #lines: { readonly line: LineRecord; readonly prompt: Omit<LinePrompt, "tokens"> }[] = [];
  readonly #from: number[] = [0];

  get isFull(): boolean {
    return this.#length >= PORTION_TOKENS || this.#lines.length >= TREE_PROMPTS_MAX;
  }

  get isEmpty(): boolean {
    return this.#lines.length === 0;
  }

  add(line: LineRecord, { tokens, cacheKey, answerTokensMax }: LinePrompt): void {
    while (this.#length + tokens.length > this.#tokens.length) {
      const larger = new Int32Array(2 * this.#tokens.length);
      larger.set(this.#tokens);
      this.#tokens = larger;
    }
    this.#tokens.set(tokens, this.#length);
    this.#length += tokens.length;
    this.#from.push(this.#length);
    this.#lines.push({ line, prompt: { cacheKey, answerTokensMax } });
  }

  /** Lines in the order in which they run. `answerTokens`: what an answer is expected to have. */
  ordered(answerTokens: number): PlacedLine[] {
    const keys = [...new Set(this.#lines.map(({ prompt }) => prompt.cacheKey))];
    return keys.flatMap((key) => this.#orderedOf(key, answerTokens));
  }

  /** Lines whose prefixes may be shared. */
  #orderedOf(key: string, answerTokens: number): PlacedLine[] {
    const indices: number[] = [];
    this.#lines.forEach(({ prompt }, index) => {
      if (prompt.cacheKey === key) indices.push(index);
    });
    const tree = new PrefixTree(this.#tableOf(indices));
    const answerOf = (prompt: number): number =>
      Math.min(this.#lines[indices[prompt]!]!.prompt.answerTokensMax, answerTokens);
    const { prompts, sharedTokens } = orderOf(tree, oneLevel(tree), answerOf);
    return [...prompts].map((prompt, place) => {
      const index = indices[prompt]!;
      const { line, prompt: of } = this.#lines[index]!;
      const tokens = this.#from[index + 1]! - this.#from[index]!;
      return { line, newTokens: tokens - sharedTokens[place]!, tokensMax: of.answerTokensMax };
    });
  }

  #tableOf(indices: readonly number[]): { readonly tokens: Int32Array; readonly from: readonly number[] } {
    if (indices.length === this.#lines.length) return { tokens: this.#tokens, from: this.#from };
    const from = [0];
    for (const index of indices) from.push(from.at(-1)! + this.#from[index + 1]! - this.#from[index]!);
    const tokens = new Int32Array(from.at(-1)!);
    indices.forEach((index, at) => {
      tokens.set(this.#tokens.subarray(this.#from[index]!, this.#from[index + 1]!), from[at]!);
    });
    return { tokens, from };
  }
}

import { assert } from "../../base/assert.ts";

/**
 * Share of the job's pages that waiting sequences may need on top. They wait on the engines, whose caches
 * protect their prefixes (docs/scheduler-tuning.md), and can begin at once. With a smaller share, engines
 * that admit by prompt alone would have no waiting sequence when memory holds only a few groups.
 */
const AHEAD = 0.5;
/** Expected tokens of the first answers. */
const ANSWER_GUESS = 128;
/** Weight of a new answer in the moving average, once there are many. */
const EMA_WEIGHT = 1 / 64;

/** Sequence of a job as batch admission sees it, by position in the job's order. */
export interface BatchItem {
  /** Prompt tokens that are not shared with the sequence before. */
  readonly newTokens: number;
  /** Tokens of the answer at most. */
  readonly tokensMax: number;
}

/** Sequences of a job, in its order. */
export interface BatchItems {
  readonly length: number;
  at(place: number): BatchItem | undefined;
}

/** Capacity that a job may use. */
export interface BatchRoom {
  /** Tokens of keys and values. */
  readonly tokens: number;
  /** Sequences per step, over the devices. */
  readonly sequences: number;
  /** Tokens per step, over the devices. */
  readonly stepTokens: number;
}

/**
 * Batch admission: how many sequences of a job are on the engines at a time. It submits as many as their
 * memory is likely to hold, and half as many more. Memory decides, not a fixed number (BatchLLM,
 * arXiv:2412.03594 §4.3.3); the devices' step limits are the only other bound. The expected size of a
 * sequence is its new prompt tokens plus the mean answer of the job so far. Short answers never fill the memory,
 * since a sequence ends as many steps after its prompt as its answer has tokens; `stepTokens` bounds these.
 *
 * It submits sequences in the job's order, so that those with a shared prefix are on the engines together.
 * Later sequences cost nothing: a chat finds a short queue, however large the job. At least one sequence is
 * always submitted, however large it is.
 */
export class BatchAdmission {
  readonly #items: BatchItems;
  #room: BatchRoom;
  #next = 0;
  /** Positions of submitted sequences that have not ended. */
  readonly #given = new Set<number>();
  #newTokens = 0;
  #answerTokens = ANSWER_GUESS;
  #answers = 0;

  constructor(items: BatchItems, room: BatchRoom) {
    this.#items = items;
    this.#room = room;
  }

  /** Number of submitted sequences that have not ended. */
  get given(): number {
    return this.#given.size;
  }

  /** True if every sequence was submitted and has ended. */
  get isDone(): boolean {
    return this.#next === this.#items.length && this.#given.size === 0;
  }

  /** Expected tokens of an answer. */
  get answerTokens(): number {
    return this.#answerTokens;
  }

  /** Sets the capacity, after other jobs came or went. */
  setRoom(room: BatchRoom): void {
    this.#room = room;
  }

  /** Returns the position of the next sequence to run; null: none now, or none left. */
  next(): number | null {
    const item = this.#items.at(this.#next);
    if (item === undefined || !this.#hasRoomFor(item)) return null;
    const place = this.#next;
    this.#next += 1;
    this.#given.add(place);
    this.#newTokens += item.newTokens;
    return place;
  }

  /** Records the end of a sequence. `answerTokens`: length of its answer; null: it has none. */
  ended(place: number, answerTokens: number | null): void {
    assert(this.#given.delete(place), "a sequence ends once, after it was given");
    this.#newTokens -= this.#items.at(place)!.newTokens;
    if (answerTokens === null) return;
    this.#answers += 1;
    this.#answerTokens += (answerTokens - this.#answerTokens) * Math.max(EMA_WEIGHT, 1 / this.#answers);
  }

  #hasRoomFor({ newTokens, tokensMax }: BatchItem): boolean {
    if (this.#given.size === 0) return true;
    const { tokens, sequences, stepTokens } = this.#room;
    const answer = Math.min(tokensMax, this.#answerTokens);
    const needed = this.#newTokens + newTokens + (this.#given.size + 1) * answer;
    return (
      needed <= (1 + AHEAD) * Math.min(tokens, (1 + answer) * stepTokens) &&
      this.#given.size + 1 <= (1 + AHEAD) * sequences
    );
  }
}

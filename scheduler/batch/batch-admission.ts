import { assert } from "../../base/assert.ts";

/** Of the pages that a job may fill, the part that its sequences ahead of the running ones may need besides: they wait on the engines,
 *  which keep what those will read (docs/scheduler-tuning.md), and can begin at once. With less, what the engines admit by its prompt alone leaves
 *  none waiting where memory holds a few groups. */
const AHEAD = 0.5;
/** Assumed length of the first answers. */
const ANSWER_GUESS = 128;
/** Weight of one more answer in the expected length, once there are many. */
const LATELY = 1 / 64;

/** Sizes of a job's sequence. */
export interface BatchItem {
  /** Prompt tokens that it does not share with the sequence before. */
  readonly newTokens: number;
  /** Most tokens of its answer. */
  readonly tokensMax: number;
}

/** A job's sequences, in its order. */
export interface BatchItems {
  readonly length: number;
  at(place: number): BatchItem | undefined;
}

/** The capacity that a job may fill. */
export interface BatchRoom {
  /** Tokens of keys and values. */
  readonly tokens: number;
  /** Most sequences of the devices' steps. */
  readonly sequences: number;
  /** Most tokens of the devices' steps. */
  readonly stepTokens: number;
}

/**
 * Admits as many of a job's sequences to the engines as their memory is likely to hold, and half as many more. Memory decides, and no
 * fixed number (BatchLLM, arXiv:2412.03594 §4.3.3); the only other limit is the size of the devices' steps. A sequence is expected to need
 * its new prompt tokens and an answer as long as the job's answers so far. With short answers fewer sequences run at a time than memory
 * holds: each ends as many steps after its prompt as its answer has tokens.
 *
 * Sequences are admitted in the order of the job, so that those with a common prefix run together. The others cost nothing yet: a chat
 * finds the queue of an engine short, whatever the size of the job. One sequence is always admitted, whatever it needs.
 */
export class BatchAdmission {
  readonly #items: BatchItems;
  #room: BatchRoom;
  #next = 0;
  /** Places of admitted sequences that have not ended. */
  readonly #given = new Set<number>();
  #newTokens = 0;
  #answerTokens = ANSWER_GUESS;
  #answers = 0;

  constructor(items: BatchItems, room: BatchRoom) {
    this.#items = items;
    this.#room = room;
  }

  /** Number of admitted sequences that have not ended. */
  get given(): number {
    return this.#given.size;
  }

  /** Whether every sequence was admitted and has ended. */
  get isDone(): boolean {
    return this.#next === this.#items.length && this.#given.size === 0;
  }

  /** Expected tokens of an answer. */
  get answerTokens(): number {
    return this.#answerTokens;
  }

  /** Changes the capacity, as other jobs came or went. */
  setRoom(room: BatchRoom): void {
    this.#room = room;
  }

  /** Admits the next sequence, and returns its place; null: not now, or there is none left. */
  next(): number | null {
    const item = this.#items.at(this.#next);
    if (item === undefined || !this.#hasRoomFor(item)) return null;
    const place = this.#next;
    this.#next += 1;
    this.#given.add(place);
    this.#newTokens += item.newTokens;
    return place;
  }

  /** Takes note that a sequence has ended, with an answer of `tokens`; null: without one. */
  ended(place: number, answerTokens: number | null): void {
    assert(this.#given.delete(place), "a sequence ends once, after it was given");
    this.#newTokens -= this.#items.at(place)!.newTokens;
    if (answerTokens === null) return;
    this.#answers += 1;
    this.#answerTokens += (answerTokens - this.#answerTokens) * Math.max(LATELY, 1 / this.#answers);
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

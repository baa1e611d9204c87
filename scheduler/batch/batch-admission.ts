import { assert } from "../../base/assert.ts";

/** Of the pages that a job may fill, the part that its sequences ahead of the running ones may need besides: they wait on the engines,
 *  which keep what those will read (docs/scheduler-tuning.md), and can begin at once. With less, what the engines admit by its prompt alone leaves
 *  none waiting where memory holds a few groups. */
const AHEAD = 0.5;
/** Assumed of the first answers. */
const ANSWER_GUESS = 128;
/** Weight of one more answer in what is expected, once there are many. */
const LATELY = 1 / 64;

/** What a feed has to know of a job's sequences, by place in the order of the job. */
export interface BatchItem {
  /** Tokens of its prompt that it does not share with the one before. */
  readonly newTokens: number;
  /** Tokens that its answer may have at most. */
  readonly tokensMax: number;
}

/** A job's sequences, in its order. */
export interface BatchItems {
  readonly length: number;
  at(place: number): BatchItem | undefined;
}

/** What a job may fill. */
export interface BatchRoom {
  /** Tokens of keys and values. */
  readonly tokens: number;
  /** Sequences that the devices take in a step. */
  readonly sequences: number;
  /** Tokens that they take in a step. */
  readonly stepTokens: number;
}

/**
 * How many of a job's sequences are given to the engines at a time: as many as their memory is likely to hold, and half as many more.
 * Memory decides, and no number that was chosen beforehand (BatchLLM, arXiv:2412.03594 §4.3.3); what the devices take in a step is the only other
 * limit. A sequence is expected to need what is new in its prompt and an answer as long as the job's answers have been. Of short answers
 * memory would hold more than ever are there at a time: a sequence has ended as many steps after its prompt as its answer has tokens.
 *
 * Sequences are given in the order of the job, so that those which share a prefix are on the engines together. What is not given yet costs
 * nothing: a chat finds the queue of an engine short, whatever the size of the job. One sequence is always given, whatever it needs.
 */
export class BatchAdmission {
  readonly #items: BatchItems;
  #room: BatchRoom;
  #next = 0;
  /** Places of sequences that were given and have not ended. */
  readonly #given = new Set<number>();
  #newTokens = 0;
  #answerTokens = ANSWER_GUESS;
  #answers = 0;

  constructor(items: BatchItems, room: BatchRoom) {
    this.#items = items;
    this.#room = room;
  }

  /** Sequences that were given and have not ended. */
  get given(): number {
    return this.#given.size;
  }

  /** Whether every sequence was given and has ended. */
  get isDone(): boolean {
    return this.#next === this.#items.length && this.#given.size === 0;
  }

  /** Tokens that an answer is expected to have. */
  get answerTokens(): number {
    return this.#answerTokens;
  }

  /** Other jobs came or went. */
  setRoom(room: BatchRoom): void {
    this.#room = room;
  }

  /** The place of the sequence that is to run next; null: not now, or there is none left. */
  next(): number | null {
    const item = this.#items.at(this.#next);
    if (item === undefined || !this.#hasRoomFor(item)) return null;
    const place = this.#next;
    this.#next += 1;
    this.#given.add(place);
    this.#newTokens += item.newTokens;
    return place;
  }

  /** A sequence has ended, with an answer of so many tokens; null: without. */
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

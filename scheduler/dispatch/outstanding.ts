import type { Objective } from "../core.ts";
import type { IndexSpan } from "./index-span.ts";

const lanes: readonly Objective[] = ["latency", "gang", "throughput"];
/** What an engine's queue gives each lane while all of them have something to do (local/lanes.ts). */
const CREDITS: readonly number[] = [8, 4, 1];

/** A sequence that was placed and has not ended. */
export interface Job {
  readonly engine: number;
  readonly objective: Objective;
  /** Asked for a time between tokens. */
  readonly hasTarget: boolean;
  /** To compute what is not cached of the prompt, in whole microseconds; 0 once the first token is there. */
  promptUs: number;
  /** Pages that it will take, until it has been told to have them. */
  pages: number;
  /** Tokens of prompt and output. */
  context: number;
  drawn: number;
  /** Output tokens that it is expected to have at the end, ≥ drawn. */
  expected: number;
  readonly tokensMax: number;
  /** Hash of the prompt's first page. */
  readonly prefix: number | undefined;
  readonly placedMs: number;
  /** Where its path ends in the prefix index, until its first token; null: it has none there. */
  end: IndexSpan | null;
}

/**
 * The live work of every engine: what was placed there and has not been done. It is told by events (placed, first
 * token, each token, ended), never guessed from windows; sums are of integers, so that they are 0 when nothing is
 * left.
 */
export class Outstanding {
  readonly #promptUs: Float64Array;
  readonly #decodeTokens: Float64Array;
  readonly #sequences: Int32Array;
  readonly #targets: Int32Array;
  readonly #contexts: Float64Array;
  readonly #pages: Int32Array;

  constructor(engines: number) {
    this.#promptUs = new Float64Array(engines * lanes.length);
    this.#decodeTokens = new Float64Array(engines * lanes.length);
    this.#sequences = new Int32Array(engines);
    this.#targets = new Int32Array(engines);
    this.#contexts = new Float64Array(engines);
    this.#pages = new Int32Array(engines);
  }

  /** Sequences that have not ended. */
  sequences(engine: number): number {
    return this.#sequences[engine]!;
  }

  /** Those of them that asked for a time between tokens. */
  targets(engine: number): number {
    return this.#targets[engine]!;
  }

  /** Context of an average sequence there, in tokens; 0 without any. */
  meanContext(engine: number): number {
    return this.#contexts[engine]! / Math.max(1, this.#sequences[engine]!);
  }

  /** Pages that sequences on their way will take. */
  pages(engine: number): number {
    return this.#pages[engine]!;
  }

  /** Milliseconds of work that come before or beside a new sequence of that objective: of its own lane and those
   *  above all, of those below what their credits win against its own. `decodeMs` is of one token. */
  workMs(engine: number, objective: Objective, decodeMs: number): number {
    const own = lanes.indexOf(objective);
    let sum = 0;
    for (let lane = 0; lane < lanes.length; lane++) {
      const share = lane <= own ? 1 : CREDITS[lane]! / (CREDITS[lane]! + CREDITS[own]!);
      sum += share * this.laneMs(engine, lanes[lane]!, decodeMs);
    }
    return sum;
  }

  /** Milliseconds of work of one lane. */
  laneMs(engine: number, objective: Objective, decodeMs: number): number {
    const at = engine * lanes.length + lanes.indexOf(objective);
    return this.#promptUs[at]! / 1000 + this.#decodeTokens[at]! * decodeMs;
  }

  placed(job: Job): void {
    this.#count(job, 1);
  }

  /** It holds its pages, which are in the engine's own count now, and its prompt is that much work in truth. */
  started(job: Job, promptUs: number): void {
    this.#pages[job.engine]! -= job.pages;
    job.pages = 0;
    this.#promptUs[laneOf(job)]! += promptUs - job.promptUs;
    job.promptUs = promptUs;
  }

  /** A token was drawn. An answer that outgrows what was expected is expected to become twice as long. */
  drew(job: Job): void {
    const at = laneOf(job);
    this.#promptUs[at]! -= job.promptUs;
    job.promptUs = 0;
    job.drawn += 1;
    job.context += 1;
    this.#contexts[job.engine]! += 1;
    this.#decodeTokens[at]! -= 1;
    if (job.drawn < job.expected) return;
    const expected = Math.max(job.drawn, Math.min(job.tokensMax, 2 * job.expected));
    this.#decodeTokens[at]! += expected - job.expected;
    job.expected = expected;
  }

  ended(job: Job): void {
    this.#count(job, -1);
  }

  #count(job: Job, sign: 1 | -1): void {
    const at = laneOf(job);
    this.#promptUs[at]! += sign * job.promptUs;
    this.#decodeTokens[at]! += sign * (job.expected - job.drawn);
    this.#sequences[job.engine]! += sign;
    this.#targets[job.engine]! += sign * Number(job.hasTarget);
    this.#contexts[job.engine]! += sign * job.context;
    this.#pages[job.engine]! += sign * job.pages;
  }
}

function laneOf({ engine, objective }: Job): number {
  return engine * lanes.length + lanes.indexOf(objective);
}

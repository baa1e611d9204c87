import { assert } from "../../base/assert.ts";
import { Reader } from "../cache/radix-tree.ts";
import type { Residency } from "../cache/residency.ts";
import {
  type Chunk,
  chatService,
  greedySampling,
  type PageMove,
  type Prospect,
  type SequenceId,
  sharingOf,
} from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import { lengthLimit, unknownToken } from "./refusal.ts";
import { Sequence } from "./sequence.ts";
import { type SpareStep, spareTokens } from "./step/spare.ts";

/** Prospects that a step is asked to have a piece of, at most. */
const TRIES_MAX = 4;

/** A prospect that was told, and the reader that keeps its pages wanted. */
interface Known {
  readonly prospect: Prospect;
  readonly reader: Reader;
}

/** A chunk computed ahead. It holds its pages for this step alone. */
interface WarmChunk {
  readonly prospect: SequenceId;
  readonly sequence: Sequence;
  readonly count: number;
}

/** A piece of a prospect as a step has it. */
export interface WarmStep {
  readonly chunk: Chunk;
  readonly move: PageMove | null;
}

/** What a step has already. */
export interface StepSoFar extends Omit<SpareStep, "left" | "context" | "isOwn"> {
  /** Whether every decode is of that program, and none has a target. */
  isOwn(program: number): boolean;
  /** Pages that stay available for others. */
  readonly headroom: number;
}

/**
 * The prospects of one engine: beginnings of prompts that calls are going to read which wait for the rest of them.
 *
 * Each has a reader in the cache, so that what is cached of it is evicted after all that has no reader; but it is
 * evicted if need be. Where a step has time that nothing else wants, a piece of what is missing is computed ahead. It takes
 * pages that are free or unwanted, and hands them to the cache as soon as the step is done: between steps a prospect holds
 * nothing, and so never takes room from a sequence.
 */
export class Prospects {
  readonly #residency: Residency;
  readonly #spec: DeviceSpec;
  readonly #costs: CostModel;
  /** In the order in which they were told. */
  readonly #known = new Map<SequenceId, Known>();
  #inFlight: WarmChunk | null = null;

  constructor(residency: Residency, spec: DeviceSpec, costs: CostModel) {
    this.#residency = residency;
    this.#spec = spec;
    this.#costs = costs;
  }

  get isEmpty(): boolean {
    return this.#known.size === 0;
  }

  /** The chunk in the step in flight; null: there is none. */
  get inFlight(): WarmChunk | null {
    return this.#inFlight;
  }

  /** The prospect is new, or longer than it was told before. What can never run here is not kept. */
  expect(prospect: Prospect): void {
    this.forget(prospect.id, false);
    const { tokens } = prospect;
    const isPossible = tokens.length > 0 && tokens.length < lengthLimit(this.#spec);
    if (!isPossible) return;
    if (unknownToken(tokens, this.#spec.vocabSize) !== null) return;
    const reader = new Reader(
      sharingOf(prospect, this.#residency.pool.pageTokens),
      Int32Array.from(tokens),
      tokens.length,
      () => {},
    );
    this.#residency.cache.follow(reader);
    this.#known.set(prospect.id, { prospect, reader });
  }

  /** No call waits to read it any more. `givesUp`: nor will another, as far as is known: it is evicted first. */
  forget(id: SequenceId, givesUp: boolean): void {
    const known = this.#known.get(id);
    if (known === undefined) return;
    this.#known.delete(id);
    this.#residency.cache.unfollow(known.reader, givesUp);
  }

  /** A piece of the first prospect that lacks one worth a step's time, if there is room; null: nothing. Takes pages for it. */
  plan(step: StepSoFar): WarmStep | null {
    assert(this.#inFlight === null, "one step at a time");
    let tries = TRIES_MAX;
    for (const { prospect, reader } of this.#known.values()) {
      const context = reader.depth;
      const left = reader.limit - context;
      if (!prospect.isWarmed || left <= 0) continue;
      const isOwn = prospect.program !== null && step.isOwn(prospect.program);
      const count = spareTokens(this.#costs, { ...step, isOwn, left, context });
      if (count > 0) {
        const hasRoom = this.#hasRoom(context, count, step.headroom);
        return hasRoom ? this.#begin(prospect, reader, context + count) : null;
      }
      // What is left of it may be too little to be worth a piece.
      tries -= 1;
      if (tries === 0) return null;
    }
    return null;
  }

  /** The step is over; `isGood`: what it computed is right. Returns the tokens that are new in the cache. */
  done(isGood: boolean): { readonly prospect: SequenceId; readonly tokens: number } | null {
    const warm = this.#inFlight;
    if (warm === null) return null;
    this.#inFlight = null;
    const { sequence, count, prospect } = warm;
    if (isGood) this.#residency.computed(sequence, count);
    this.#residency.leave(sequence, isGood);
    return isGood ? { prospect, tokens: count } : null;
  }

  #hasRoom(context: number, count: number, headroom: number): boolean {
    const { pageTokens } = this.#residency.pool;
    const needed = Math.ceil((context + count) / pageTokens) - Math.floor(context / pageTokens);
    return this.#residency.hasUnwanted(needed, headroom);
  }

  #begin(prospect: Prospect, reader: Reader, end: number): WarmStep {
    const { adapter, cacheSalt, publicTokens = 0, id } = prospect;
    const sequence = new Sequence(
      {
        id,
        promptTokens: reader.tokens.subarray(0, end),
        drawnTokens: [],
        sampling: greedySampling,
        stop: { tokensMax: 1, tokensMin: 0, stopTokens: [] },
        cacheSalt,
        publicTokens,
        adapter,
        service: chatService,
      },
      0,
      0,
    );
    this.#residency.follow(sequence, () => {});
    const move = this.#residency.settle(sequence, true);
    const start = sequence.computed;
    this.#inFlight = { prospect: id, sequence, count: end - start };
    const chunk: Chunk = {
      sequence: id,
      start,
      tokens: sequence.tokensOf(start, end),
      pages: sequence.kv.pageTable(sequence.kv.pageCount),
      samples: [],
      adapter,
    };
    return { chunk, move };
  }
}

import { assert } from "../../base/assert.ts";
import type { KvCacheManager } from "../cache/kv-cache-manager.ts";
import type { Checkpoint, PrefixWaiter } from "../cache/radix-tree.ts";
import { type Chunk, type PageMove, type PrefixHint, type SequenceId, sequenceOfHint } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import { lengthLimit, unknownToken } from "./refusal.ts";
import { Sequence } from "./sequence.ts";
import { type PrefetchStep, prefetchTokens } from "./step/prefetch-budget.ts";
import type { TierLoads } from "./tier-loads.ts";

/** Prefix hints that `plan` tries per step at most. */
const TRIES_MAX = 4;

/** A prefix hint, and the waiter that protects its cached pages. */
interface Known {
  readonly hint: PrefixHint;
  /** Placeholder for the sequence to come, which the cache tracks. */
  readonly reader: Sequence;
  readonly waiter: PrefixWaiter;
  /** The checkpoint at the end of its last prefetch chunk; null: there is none. */
  end: Checkpoint | null;
}

/** A prefetch chunk: part of a hint's prefix that a step computes ahead. It holds pages for this step alone. */
interface WarmChunk {
  readonly hint: SequenceId;
  readonly sequence: Sequence;
  readonly count: number;
}

/** A prefetch chunk in the form that a step needs. */
export interface WarmStep {
  readonly chunk: Chunk;
  readonly move: PageMove | null;
}

/** A step as far as it is planned. */
export interface StepSoFar extends Omit<PrefetchStep, "left" | "context" | "isOwn"> {
  /** True if every decode belongs to that program, and none has a target. */
  isOwn(program: number): boolean;
  /** Pages that stay available for others. */
  readonly headroom: number;
}

/**
 * The prefix hints of one engine: beginnings of prompts to come, whose calls wait for the rest.
 *
 * Each has a waiter in the cache, so that the cache evicts other pages before its own. A lower tier loads the missing
 * pages that it has; prefetch chunks compute others in steps with spare time. A chunk uses free or unprotected
 * pages, and the cache takes them over when the step ends. Between steps a prefix hint holds no pages, so it
 * never takes room from a sequence.
 */
export class PrefixHints {
  readonly #kvCache: KvCacheManager;
  readonly #spec: DeviceSpec;
  readonly #costs: CostModel;
  /** Null: there is no lower tier. */
  readonly #loads: TierLoads | null;
  /** Hints by id, in order of arrival. */
  readonly #known = new Map<SequenceId, Known>();
  #inFlight: WarmChunk | null = null;

  constructor(kvCache: KvCacheManager, spec: DeviceSpec, costs: CostModel, loads: TierLoads | null) {
    this.#kvCache = kvCache;
    this.#spec = spec;
    this.#costs = costs;
    this.#loads = loads;
  }

  get isEmpty(): boolean {
    return this.#known.size === 0;
  }

  /** The chunk in the step in flight; null: there is none. */
  get inFlight(): WarmChunk | null {
    return this.#inFlight;
  }

  /** Adds a prefix hint, or replaces a shorter one. A prompt that can never run here is ignored. */
  expect(hint: PrefixHint): void {
    const end = this.#known.get(hint.id)?.end ?? null;
    this.forget(hint.id, false);
    const { tokens } = hint;
    const isPossible = tokens.length > 0 && tokens.length < lengthLimit(this.#spec);
    if (!isPossible) return;
    if (unknownToken(tokens, this.#spec.vocabSize) !== null) return;
    const reader = new Sequence(sequenceOfHint(hint, Int32Array.from(tokens)), 0, 0);
    this.#kvCache.track(reader, () => {}, reader.length);
    this.#known.set(hint.id, { hint, reader, waiter: reader.kv.waiter!, end });
    if (hint.isWarmed) this.#loads?.expects(reader);
  }

  /** Removes a prefix hint. `givesUp`: no other call is known to need its pages, which are evicted first. */
  forget(id: SequenceId, givesUp: boolean): void {
    const known = this.#known.get(id);
    if (known === undefined) return;
    this.#known.delete(id);
    this.#loads?.forgets(known.reader);
    this.#kvCache.untrack(known.reader, givesUp);
  }

  /**
   * Plans a prefetch chunk of the first prefix hint for which it pays, and allocates its pages; null: it pays for
   * none, or there is no room.
   */
  plan(step: StepSoFar): WarmStep | null {
    assert(this.#inFlight === null, "one step at a time");
    let tries = TRIES_MAX;
    for (const { hint, waiter, reader } of this.#known.values()) {
      const context = waiter.usable;
      const left = waiter.limit - context;
      if (!hint.isWarmed || left <= 0) continue;
      if (this.#loads?.isLoading(reader) === true) continue;
      const isOwn = hint.program !== null && step.isOwn(hint.program);
      const count = prefetchTokens(this.#costs, { ...step, isOwn, left, context });
      if (count > 0) {
        const hasRoom = this.#hasRoom(context, count, step.headroom);
        return hasRoom ? this.#begin(hint, waiter, context + count) : null;
      }
      // The hint's last few tokens may not pay for a chunk; the next hint may.
      tries -= 1;
      if (tries === 0) return null;
    }
    return null;
  }

  /**
   * Ends the prefetch chunk in flight with its step. `isGood`: the device computed it. Returns how many tokens
   * the cache has taken over.
   */
  done(isGood: boolean): { readonly hint: SequenceId; readonly tokens: number } | null {
    const warm = this.#inFlight;
    if (warm === null) return null;
    this.#inFlight = null;
    const { sequence, count, hint } = warm;
    if (isGood) this.#kvCache.computed(sequence, count);
    this.#kvCache.free(sequence, isGood);
    if (!isGood) return null;
    const known = this.#known.get(hint);
    if (known !== undefined) this.#moveEnd(known, sequence.length);
    return { hint, tokens: count };
  }

  /** Drops the checkpoint of the hint's previous chunk, once the newest chunk has left one at its end, `depth`. */
  #moveEnd(known: Known, depth: number): void {
    const { end, waiter } = known;
    if (waiter.checkpoint?.depth !== depth) return;
    if (end !== null && end.node !== null && end.pins === 0) this.#kvCache.cache.checkpoints!.drop(end);
    known.end = waiter.checkpoint;
  }

  #hasRoom(context: number, count: number, headroom: number): boolean {
    const { pool, cache } = this.#kvCache;
    const { pageTokens } = pool;
    if (cache.checkpoints?.isWorth("end", context + count, context) === false) return false;
    const needed = Math.ceil((context + count) / pageTokens) - Math.floor(context / pageTokens);
    return this.#kvCache.hasUnprotected(needed, headroom);
  }

  #begin(hint: PrefixHint, waiter: PrefixWaiter, end: number): WarmStep {
    const sequence = new Sequence(sequenceOfHint(hint, waiter.tokens.subarray(0, end)), 0, 0);
    this.#kvCache.track(sequence, () => {});
    const move = this.#kvCache.allocate(sequence, true);
    const start = sequence.computed;
    const state = this.#kvCache.planState(sequence, end, false);
    const { draftModel, pageTokens } = this.#spec;
    this.#inFlight = { hint: hint.id, sequence, count: end - start };
    const chunk: Chunk = {
      sequence: hint.id,
      start,
      tokens: sequence.tokensOf(start, end),
      pages: sequence.kv.pageTable(sequence.kv.pageCount),
      samples: [],
      adapter: hint.adapter,
      ...(draftModel === undefined ? {} : { unread: sequence.unreadBefore(start, pageTokens) }),
      ...(state === null ? {} : { state }),
    };
    return { chunk, move };
  }
}

import { part } from "../../base/part.ts";
import type { TokenId } from "../../base/token.ts";
import { SequenceKv } from "../cache/sequence-kv.ts";
import {
  type ChunkRow,
  cacheKeyOf,
  type DeviceDraft,
  greedySampling,
  type ProgramPlace,
  type SampleRow,
  type SequenceId,
  type SequenceSpec,
  type Service,
} from "../core.ts";
import type { SequenceDrafts } from "../draft/sequence-drafts.ts";
import { TimeAccount } from "../explain/time-account.ts";
import { type ObjectiveRules, objectives } from "../objective.ts";
import { Pool } from "./pool.ts";
import type { ArrivalList } from "./queue/arrival-list.ts";
import type { VirtualTokenCounter } from "./queue/virtual-token-counter.ts";
import { SeenCounter } from "./seen-counter.ts";

/**
 * waiting:  in the wait queue, unless it is paused; holds no pages.
 * running:  holds pages and a lock; has a chunk in every step that has room for it.
 * ended:    reported so; holds nothing.
 */
export type SequenceState = "waiting" | "running" | "ended";

/** A sequence's entry in the wait queue. Written by queue/ and by the queue orders of baselines. */
export interface QueueEntry {
  /** The list of the queue's order that it is in. */
  bucket: ArrivalList<Sequence> | null;
  /**
   * Its tenant's counter; null where the order has none. It outlasts the wait, since output is charged too.
   */
  counter: VirtualTokenCounter | null;
  /**
   * The running sequence that computes the prefix which this one waits for; null: it does not wait for any.
   */
  owner: Sequence | null;
}

/** Times of a running sequence's last chunk and token. Written by the sequence table. */
export interface Pacing {
  /** Time of its last token drawn here; -Infinity: none was. */
  lastTokenMs: number;
  /** Time of its last chunk, or of its arrival. */
  lastChunkMs: number;
  /** Steps in a row that left its decode out. */
  skips: number;
  /** Moving average of the tokens drawn per decode step, ≥ 1; above 1 where drafts are accepted. */
  advance: number;
}

const nothingBanned: readonly TokenId[] = [];

/**
 * An engine's record of one sequence. There are no phases: a sequence knows `length` tokens, prompt then
 * output, and has computed the first `computed` of them; decoding is being behind by one (Sarathi-Serve,
 * arXiv:2403.02310 §4, without its prefill flag). Preemption sets `computed` back and touches nothing else,
 * which is why neither the tokens nor `tokensMax` change by it.
 *
 * Each part has one writer: `kv` the KV cache manager, `queued` the wait queue, and all else the sequence
 * table.
 */
export class Sequence {
  readonly spec: SequenceSpec;
  /** 0, 1, 2 … in order of arrival. */
  readonly arrival: number;
  /**
   * Time of its arrival; after a pause, the time at which its client read on, so that it comes behind
   * sequences that waited.
   */
  arrivedMs: number;
  readonly cacheKey: string;
  readonly kv = new SequenceKv();
  readonly queued: QueueEntry = { bucket: null, counter: null, owner: null };
  readonly pacing: Pacing;
  /** Its time by cause. Written by explain/. */
  readonly account: TimeAccount;

  /** Its service now, which `serve` may raise; `spec` has the first one. */
  #service: Service;
  #objective: ObjectiveRules;

  state: SequenceState = "waiting";
  /**
   * True while its client reads too slowly. Paused sequences get no chunks, are not in the queue, and are
   * preempted first.
   */
  isPaused = false;
  /** True if it was aborted while in the step in flight: it ends with that step. */
  isAborted = false;
  /** True if another sequence will continue it. */
  isHeld: boolean;
  /** True if it was ever admitted. */
  wasStarted = false;
  /** Time of its last admission, and the number of its tokens that were cached then. */
  admittedMs = 0;
  admittedTokens = 0;
  preemptions = 0;
  /** Back-off after preemptions: it is not admitted before the step with this number. */
  stepsUntil = 0;

  /** Number of known tokens. */
  length: number;
  /** Number of draft tokens behind them in `tokens`, which the step in flight verifies. */
  drafted = 0;
  /** Its drafters; null until the planner first asks for a draft. Written by the planner. */
  drafts: SequenceDrafts | null = null;
  /** Number of its tokens in the draft model's KV cache since it was admitted. Written by the engine. */
  draftRead = 0;
  /** The device's draft of the tokens behind the first `length`; null: none. */
  deviceDraft: { readonly length: number; readonly draft: DeviceDraft } | null = null;
  /** The pool of a sequence that draws nothing; null: it draws. */
  readonly pool: Pool | null;
  #tokens: Int32Array;
  readonly #seen: SeenCounter | null;

  constructor(spec: SequenceSpec, arrival: number, arrivedMs: number) {
    const { promptTokens: prompt, drawnTokens: drawn } = spec;
    this.spec = spec;
    this.arrival = arrival;
    this.arrivedMs = arrivedMs;
    this.pacing = { lastTokenMs: Number.NEGATIVE_INFINITY, lastChunkMs: arrivedMs, skips: 0, advance: 1 };
    this.isHeld = spec.isHeld ?? false;
    this.#service = spec.service;
    this.#objective = objectives[spec.service.objective];
    this.cacheKey = cacheKeyOf(spec);
    this.length = prompt.length + drawn.length;
    this.account = new TimeAccount(arrivedMs, drawn.length === 0 ? 0 : this.length);
    this.pool = spec.pooling === undefined ? null : new Pool(spec.pooling, this.length);
    this.#tokens = new Int32Array(this.length + Math.min(spec.stop.tokensMax, 256));
    this.#tokens.set(prompt);
    this.#tokens.set(drawn, prompt.length);
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = spec.sampling;
    const hasPenalty = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
    this.#seen = hasPenalty ? new SeenCounter(prompt) : null;
    for (let i = 0; i < drawn.length; i++) this.#seen?.add(drawn[i]!);
  }

  /** True if it was admitted before, or continues a sequence that was: it goes ahead of new sequences. */
  get isReturning(): boolean {
    return this.wasStarted || this.spec.continues !== undefined;
  }

  get id(): SequenceId {
    return this.spec.id;
  }

  /** True if its tokens are computed in one chunk. */
  get isWhole(): boolean {
    return this.spec.isWhole === true;
  }

  /** Most tokens that may come from the cache: a token with an output row must be computed. */
  get cachedMax(): number {
    if (this.isWhole) return 0;
    return this.pool?.next ?? this.length - 1;
  }

  /** Number of cached tokens while it waits. */
  get cachedTokens(): number {
    return this.kv.cachedTokens;
  }

  /** Number of known tokens that are computed. */
  get computed(): number {
    return this.kv.computed;
  }

  get service(): Service {
    return this.#service;
  }

  get objective(): ObjectiveRules {
    return this.#objective;
  }

  /** Target time between two tokens; null: it has none of its own. */
  get tbtMs(): number | null {
    return this.#service.tbtMs;
  }

  /** Changes its service to one of the same tenant, priority and program. It must be in no queue. */
  serve(service: Service): void {
    this.#service = service;
    this.#objective = objectives[service.objective];
  }

  get program(): ProgramPlace | null {
    return this.#service.program;
  }

  /** Time of its arrival; of a program's call, that of its program. */
  get awaitedSinceMs(): number {
    return this.arrivedMs - (this.#service.program?.ageMs ?? 0);
  }

  /**
   * Number of known tokens that are not computed: 1 while decoding, and more after forced tokens. At least 1
   * until the sequence ends.
   */
  get behind(): number {
    return this.length - this.kv.computed;
  }

  /**
   * True if its next chunk is a decode: one token is left to compute, or several that were all drawn since it
   * was admitted (forced tokens).
   */
  get isDecoding(): boolean {
    const { computed, promptEnd } = this.kv;
    return this.length - computed === 1 || (computed >= promptEnd && this.kv.lock !== null);
  }

  get generated(): number {
    return this.length - this.spec.promptTokens.length;
  }

  /** Number of tokens that it may still draw. */
  get tokensLeft(): number {
    return this.spec.stop.tokensMax - this.generated;
  }

  /** The known tokens and some room: valid up to `length`, until the next `append`. */
  get tokens(): Int32Array {
    return this.#tokens;
  }

  /** Tokens [start, end), which do not change. Each decode of each step asks for one. */
  tokensOf(start: number, end: number): Int32Array {
    if (end - start !== 1) return part(this.#tokens, start, end);
    const single = new Int32Array(1);
    single[0] = this.#tokens[start]!;
    return single;
  }

  /** Tokens of the page of position `start`, before it, that the draft model has not computed (`Chunk.unread`). */
  unreadBefore(start: number, pageTokens: number): Int32Array {
    const from = Math.max(this.draftRead, start - (start % pageTokens));
    return this.tokensOf(Math.min(from, start), start);
  }

  append(token: TokenId): void {
    if (this.length === this.#tokens.length) this.#tokens = grown(this.#tokens);
    this.#tokens[this.length] = token;
    this.length += 1;
    this.#seen?.add(token);
    this.drafts?.drew(token);
  }

  /** Writes a draft behind the known tokens; drawn tokens overwrite it. */
  draft(tokens: readonly TokenId[]): void {
    while (this.length + tokens.length > this.#tokens.length) this.#tokens = grown(this.#tokens);
    this.#tokens.set(tokens, this.length);
    this.drafted = tokens.length;
  }

  /**
   * The output rows of chunk [start, end). A pooled sequence has hidden states. Others have rows for prompt tokens
   * with requested logprobs, then a draw after the last known token and after each draft token.
   */
  rows(start: number, end: number): readonly ChunkRow[] {
    if (this.pool !== null) return this.pool.rows(start, end);
    const { promptLogprobs, promptTokens } = this.spec;
    const rows: SampleRow[] = [];
    const promptEnd = promptLogprobs === undefined ? 0 : Math.min(end + 1, promptTokens.length);
    for (let next = start + 1; next < promptEnd; next++)
      rows.push(certainRow(next - 1 - start, promptTokens[next]!, promptLogprobs!));
    for (let known = this.length; known <= end; known++) rows.push(this.#sampleRow(known - start - 1, known));
    return rows;
  }

  /** The row that draws the token after the first `known` ones; those behind `length` are drafts. */
  #sampleRow(afterIndex: number, known: number): SampleRow {
    const { sampling, stop, promptTokens } = this.spec;
    const position = known - promptTokens.length;
    const banned = this.#bannedAt(position);
    const seen = this.#seen?.with(this.#tokens, this.length, known) ?? null;
    const row = { afterIndex, sampling, position, banned, seen, allowed: sampling.allowedTokens };
    if (this.spec.constraint === undefined) return row;
    const drawn = this.#tokens.subarray(promptTokens.length, known);
    return { ...row, constraint: { of: this.spec.constraint, drawn, endTokens: stop.stopTokens } };
  }

  #bannedAt(position: number): readonly TokenId[] {
    const { sampling, stop } = this.spec;
    const ends = position < stop.tokensMin ? stop.stopTokens : nothingBanned;
    if (sampling.badWords.length === 0) return ends;
    const lasts = sampling.badWords.flatMap((word) => (this.#hasBegun(word, position) ? [word.at(-1)!] : []));
    return [...new Set([...ends, ...lasts])];
  }

  /** True if the output before `position` ends with all tokens of the word but its last. */
  #hasBegun(word: readonly TokenId[], position: number): boolean {
    const begun = word.length - 1;
    if (begun > position) return false;
    const from = this.spec.promptTokens.length + position - begun;
    for (let i = 0; i < begun; i++) if (this.#tokens[from + i] !== word[i]) return false;
    return true;
  }
}

/** Logit bias that exceeds any difference of two logits. */
const CERTAIN_BIAS = 1e30;

/**
 * Row for a prompt logprob: its bias forces the draw of the known token. The logprobs are of the raw logits,
 * which the bias does not change.
 */
function certainRow(afterIndex: number, token: TokenId, topLogprobs: number): SampleRow {
  const sampling = { ...greedySampling, logitBias: [[token, CERTAIN_BIAS]] as const, topLogprobs };
  return { afterIndex, sampling, position: 0, banned: nothingBanned, seen: null, allowed: null };
}

function grown(array: Int32Array): Int32Array {
  const larger = new Int32Array(array.length * 2);
  larger.set(array);
  return larger;
}

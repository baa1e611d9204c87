import type { Lease } from "../cache/cache.ts";
import type { Reader } from "../cache/reader.ts";
import {
  assert,
  cacheKeyOf,
  type PageId,
  type ProgramPlace,
  type SampleRow,
  type SequenceId,
  type SequenceSpec,
  type TokenId,
} from "../core.ts";
import { type ObjectiveRules, objectives } from "../objective.ts";
import { part } from "../part.ts";
import type { Bucket } from "./queue/response-ratio.ts";
import type { Account } from "./queue/tenants.ts";
import { SeenCounter } from "./seen-counter.ts";

/**
 * waiting:       in the wait queue; holds nothing.
 * prefixPending: like waiting, but out of the queue until another has computed the prefix that they share.
 * running:       holds pages and a lease; has a chunk in every step that has room for it.
 * ended:         told so, holds nothing.
 */
export type SequenceState = "waiting" | "prefixPending" | "running" | "ended";

const nothingBanned: readonly TokenId[] = [];
const noPages = new Int32Array(0);

/**
 * An engine's record of one sequence. There are no phases: a sequence knows `length` tokens, prompt then
 * output, and has computed the first `computed` of them; decoding is being behind by one (Sarathi-Serve,
 * arXiv:2403.02310 §4, without its prefill flag). Preemption sets `computed` back and touches nothing else,
 * which is why neither the tokens nor `tokensMax` change by it.
 */
export class Sequence {
  readonly spec: SequenceSpec;
  /** 0, 1, 2 … in order of arrival. */
  readonly arrival: number;
  readonly arrivedMs: number;
  readonly objective: ObjectiveRules;
  readonly cacheKey: string;
  state: SequenceState = "waiting";
  /** A slow reader: given no chunks. Waiting: not in the queue. Running: first to give up its pages. */
  isPaused = false;
  /** No longer wanted, but in the step in flight: ends when that step does. */
  isAborted = false;
  wasStarted = false;

  length: number;
  computed = 0;
  /** Covers whole pages, [0, leasedPages × pageTokens); null unless running. */
  lease: Lease | null = null;
  leasedPages = 0;
  /** Tokens known when it was admitted: pages up to here are published as soon as they are computed, the rest
   *  at the end. */
  promptEnd = 0;
  /** Pages in the table: leased ones, then the sequence's own. */
  pageCount = 0;

  /** When its last token was drawn here; -Infinity: none was. */
  lastTokenMs = Number.NEGATIVE_INFINITY;
  /** When it last had a chunk, or arrived. */
  lastChunkMs: number;
  /** Steps in a row that left its decode out. */
  skips = 0;
  /** Tokens that were cached when it was admitted last, and when that was. */
  admittedTokens = 0;
  admittedMs = 0;
  /** Who pays; null where the queue keeps no accounts. */
  account: Account | null = null;

  preemptions = 0;
  /** After preemptions: not admitted before this step, see preemption.ts. */
  stepsUntil = 0;
  /** While it waits: what of it is cached; null where nothing is. */
  reader: Reader | null = null;
  /** The wait queue's: the group or the bucket that it is in. */
  group = 0;
  bucket: Bucket | null = null;

  #tokens: Int32Array;
  #pages: Int32Array = noPages;
  /** What `pageTable` told last; null: the table has changed since. */
  #pageTable: Int32Array | null = null;
  readonly #seen: SeenCounter | null;

  constructor(spec: SequenceSpec, arrival: number, arrivedMs: number) {
    const { promptTokens: prompt, drawnTokens: drawn } = spec;
    this.spec = spec;
    this.arrival = arrival;
    this.arrivedMs = arrivedMs;
    this.lastChunkMs = arrivedMs;
    this.objective = objectives[spec.service.objective];
    this.cacheKey = cacheKeyOf(spec);
    this.length = prompt.length + drawn.length;
    this.#tokens = new Int32Array(this.length + Math.min(spec.stop.tokensMax, 256));
    this.#tokens.set(prompt);
    this.#tokens.set(drawn, prompt.length);
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = spec.sampling;
    const hasPenalty = repetitionPenalty !== 1 || presencePenalty !== 0 || frequencyPenalty !== 0;
    this.#seen = hasPenalty ? new SeenCounter(prompt) : null;
    for (let i = 0; i < drawn.length; i++) this.#seen?.add(drawn[i]!);
  }

  get id(): SequenceId {
    return this.spec.id;
  }

  /** While it waits: tokens of its prompt that are cached. */
  get cachedTokens(): number {
    return this.reader?.depth ?? 0;
  }

  get program(): ProgramPlace | null {
    return this.spec.service.program;
  }

  /** When it arrived; a program's call as if it had come with its program. */
  get awaitedSinceMs(): number {
    return this.arrivedMs - (this.spec.service.program?.ageMs ?? 0);
  }

  get tbtMs(): number | null {
    return this.spec.service.tbtMs;
  }

  /** Tokens known but not computed; 1 while decoding. At least 1 until the sequence ends. */
  get behind(): number {
    return this.length - this.computed;
  }

  /** Whether the next chunk continues its output, or computes no more than that would. */
  get isDecoding(): boolean {
    return this.behind === 1;
  }

  get generated(): number {
    return this.length - this.spec.promptTokens.length;
  }

  /** The known tokens and some room: valid up to `length`, until the next `append`. */
  get tokens(): Int32Array {
    return this.#tokens;
  }

  /** Tokens [start, end), which do not change. Each decode of each step asks for one. */
  tokensOf(start: number, end: number): Int32Array {
    if (end - start > 1) return part(this.#tokens, start, end);
    const single = new Int32Array(1);
    single[0] = this.#tokens[start]!;
    return single;
  }

  /** The page table: valid up to `pageCount`, until the next `addPage`. Whoever rewrites entries says so. */
  get pages(): Int32Array {
    return this.#pages;
  }

  /** The table's first `count` pages, as they are until it changes. Decodes ask for the same ones many times. */
  pageTable(count: number): Int32Array {
    assert(count <= this.pageCount, "the pages of a chunk are reserved before it is planned");
    if (this.#pageTable?.length !== count) this.#pageTable = part(this.#pages, 0, count);
    return this.#pageTable;
  }

  /** Entries of the table were rewritten. */
  pagesRewritten(): void {
    this.#pageTable = null;
  }

  /** Makes room in the table for so many pages, so that it need not grow soon. */
  reservePages(count: number): void {
    if (count <= this.#pages.length) return;
    const pages = new Int32Array(count);
    pages.set(this.#pages);
    this.#pages = pages;
  }

  addPage(page: PageId): void {
    if (this.pageCount === this.#pages.length) this.reservePages(Math.max(8, 2 * this.pageCount));
    this.#pages[this.pageCount] = page;
    this.pageCount += 1;
    this.#pageTable = null;
  }

  append(token: TokenId): void {
    if (this.length === this.#tokens.length) this.#tokens = grown(this.#tokens);
    this.#tokens[this.length] = token;
    this.length += 1;
    this.#seen?.add(token);
  }

  /** How the token after the last known one is drawn, which has this index in its chunk. */
  sampleRow(afterIndex: number): SampleRow {
    const { sampling, stop } = this.spec;
    const position = this.generated;
    const banned = position < stop.tokensMin ? stop.stopTokens : nothingBanned;
    return { afterIndex, sampling, position, banned, seen: this.#seen, allowed: null };
  }
}

function grown(array: Int32Array): Int32Array {
  const larger = new Int32Array(array.length * 2);
  larger.set(array);
  return larger;
}

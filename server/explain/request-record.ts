import type { AdapterId, SequenceId } from "../../scheduler/core.ts";
import { CAUSES, causeIndex, causes, fitMs } from "../../scheduler/explain/causes.ts";
import type { Story } from "../../scheduler/explain/sequence-story.ts";
import type { Blocker } from "../../scheduler/explain/time-account.ts";
import { type CacheOutcome, foundTokens } from "../answer/cache-outcome.ts";
import type { Usage } from "../answer/events.ts";
import type { Blocker as ShownBlocker, RequestFacts as ShownFacts } from "./request-facts.ts";

/** The facts of a request that are known when its answer begins to be generated. */
export interface RequestFacts {
  readonly id: string;
  readonly tenant: string;
  /** Path of its route. */
  readonly route: string;
  readonly adapter: AdapterId;
  readonly choices: number;
  /** Arrival of the head, end of its parsing, and now, on the clock of `performance.now()`. */
  readonly arrivedMs: number;
  readonly readMs: number;
  readonly startedMs: number;
  /** Wait for the model to be loaded. */
  readonly loadMs: number;
}

/** Part of a generation that a record reads. */
export interface Recorded {
  readonly usage: Usage;
  readonly cacheOutcomes: readonly CacheOutcome[];
  /** Time by cause of its sequence that ended last, or runs; null: none was submitted. */
  readonly story: Story | null;
  readonly sequences: readonly SequenceId[];
}

/** State of a request. */
export type RequestStatus = "running" | "answered" | "failed" | "cancelled";

/** Links of a record to those of other requests. */
export interface RecordLinks {
  /** Id of the request of a sequence; null: the tenant may not know of it, or it is forgotten. */
  requestOf(sequence: SequenceId, tenant: string): string | null;
  /** Notes that these sequences are the record's. */
  names(record: RequestRecord, sequences: readonly SequenceId[]): void;
  /** Receives the time by cause of a request that has ended. */
  onClosed(ms: Float64Array): void;
}

/** Time of a request by cause, from its head to its last byte. */
export interface RequestTimes {
  readonly totalMs: number;
  readonly ms: Float64Array;
  readonly firstMs: number | null;
  readonly first: Float64Array | null;
}

/** Record of one request. It holds no text. */
export class RequestRecord {
  readonly facts: RequestFacts;
  readonly model: string;
  /** Time of its arrival in seconds since 1970. */
  readonly createdS: number;
  status: RequestStatus = "running";
  error: string | null = null;
  /** Sequences of its choices that have begun. */
  sequences: readonly SequenceId[] = [];
  readonly #links: RecordLinks;
  /** The generation while it runs. */
  #live: Recorded | null = null;
  #usage: Usage = { promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0 };
  #tierTokens = 0;
  #hostTokens = 0;
  #story: Story | null = null;
  #endMs: number | null = null;
  #isSettled = false;
  #isSent = false;
  #isClosed = false;
  #whenClosed: (() => void) | null = null;

  constructor(facts: RequestFacts, model: string, links: RecordLinks) {
    this.facts = facts;
    this.model = model;
    this.createdS = (performance.timeOrigin + facts.arrivedMs) / 1000;
    this.#links = links;
  }

  /** Reads from a generation until that has ended. */
  follow(generation: Recorded): void {
    this.#live = generation;
  }

  /** Records that its computing has begun. */
  started(): void {
    this.sequences = this.#live?.sequences ?? [];
    this.#links.names(this, this.sequences);
  }

  /** Records the last event of the answer. `error`: null for an answer. */
  ended(status: RequestStatus, error: string | null): void {
    this.status = status;
    this.error = error;
    this.#endMs = performance.now();
    this.#read();
    this.#close();
  }

  /** Records that no sequence runs any more. */
  settled(): void {
    this.#isSettled = true;
    this.#read();
    this.#live = null;
    this.#close();
  }

  /** Records that the last byte has been written. */
  sent(): void {
    this.#isSent = true;
    if (this.#endMs !== null && !this.#isClosed) this.#endMs = performance.now();
    this.#close();
  }

  /** Calls `tell` once the answer is written and no sequence runs. */
  whenClosed(tell: () => void): void {
    this.#whenClosed = tell;
  }

  /** Time of its end; now while it runs. */
  get endedMs(): number {
    return this.#endMs ?? performance.now();
  }

  get totalMs(): number {
    return this.endedMs - this.facts.arrivedMs;
  }

  /** Time from the head to the first token; null: there is none. */
  get firstMs(): number | null {
    const first = (this.#live?.story ?? this.#story)?.first ?? null;
    return first === null ? null : first.atMs - this.facts.arrivedMs;
  }

  /** Time by cause, up to the end or now. */
  times(): RequestTimes {
    const story = this.#live?.story ?? this.#story;
    const endMs = this.#endMs ?? performance.now();
    const { arrivedMs } = this.facts;
    const ms = this.#arriving(story?.openedMs ?? endMs);
    if (story !== null) {
      const own = story.ms.slice();
      fitMs(own, Math.max(0, Math.min(endMs, story.atMs) - story.openedMs), causeIndex.handing_over);
      for (let cause = 0; cause < CAUSES; cause++) ms[cause]! += own[cause]!;
    }
    fitMs(ms, endMs - arrivedMs, causeIndex.writing);
    if (story === null || story.first === null)
      return { totalMs: endMs - arrivedMs, ms, firstMs: null, first: null };
    const { atMs, ms: before } = story.first;
    const first = this.#arriving(story.openedMs);
    for (let cause = 0; cause < CAUSES; cause++) first[cause]! += before[cause]!;
    fitMs(first, atMs - arrivedMs, causeIndex.handing_over);
    return { totalMs: endMs - arrivedMs, ms, firstMs: atMs - arrivedMs, first };
  }

  /** The record as the API shows it. */
  json(): ShownFacts & { readonly object: "request" } {
    const { id, tenant, route, choices } = this.facts;
    const { totalMs, ms, firstMs, first } = this.times();
    const story = this.#live?.story ?? this.#story;
    if (!this.#isSettled) this.#read();
    const { promptTokens, cachedTokens, completionTokens, drafts } = this.#usage;
    const blocker = (one: Blocker | null): ShownBlocker | null =>
      one === null ? null : { request: this.#links.requestOf(one.sequence, tenant), ms: rounded(one.ms) };
    return {
      object: "request",
      id,
      model: this.model,
      route,
      status: this.status,
      error: this.error,
      created: rounded(this.createdS),
      total_ms: rounded(totalMs),
      first_token_ms: firstMs === null ? null : rounded(firstMs),
      causes: byName(ms),
      first_token_causes: first === null ? null : byName(first),
      tokens: {
        prompt: promptTokens,
        found: foundTokens({ cachedTokens, tierTokens: this.#tierTokens, hostTokens: this.#hostTokens }),
        computed: promptTokens - cachedTokens,
        recomputed: story?.recomputedTokens ?? 0,
        generated: completionTokens,
        drafts: { checked: drafts?.tokens ?? 0, right: drafts?.accepted ?? 0 },
      },
      late: { tokens: story?.lateTokens ?? 0, ms: rounded(story?.lateMs ?? 0) },
      preemptions: story?.preemptions ?? 0,
      engines: story?.engines ?? [],
      choices,
      behind: blocker(story?.behind ?? null),
      same_prefix_of: blocker(story?.prefixOwner ?? null),
    };
  }

  /** Time before the first submission, at `openedMs`, by cause. */
  #arriving(openedMs: number): Float64Array {
    const { arrivedMs, readMs, startedMs, loadMs } = this.facts;
    const ms = new Float64Array(CAUSES);
    ms[causeIndex.loading_model] = Math.min(loadMs, readMs - arrivedMs);
    ms[causeIndex.reading] = readMs - arrivedMs - ms[causeIndex.loading_model]!;
    ms[causeIndex.tokenizing] = startedMs - readMs;
    ms[causeIndex.compiling] = Math.max(0, openedMs - startedMs);
    return ms;
  }

  #read(): void {
    const live = this.#live;
    if (live === null) return;
    this.#usage = live.usage;
    this.#tierTokens = live.cacheOutcomes.reduce((sum, { tierTokens }) => sum + tierTokens, 0);
    this.#hostTokens = live.cacheOutcomes.reduce((sum, { hostTokens }) => sum + hostTokens, 0);
    this.#story = live.story ?? this.#story;
  }

  #close(): void {
    if (this.#isClosed || this.#endMs === null || !this.#isSettled) return;
    if (!this.#isSent && this.status === "answered") return;
    this.#isClosed = true;
    this.#links.onClosed(this.times().ms);
    this.#whenClosed?.();
    this.#whenClosed = null;
  }
}

/** Opens a record outside of the lists of requests: it names no other request, and no other names it. */
export function recordAlone(facts: RequestFacts, model: string): RequestRecord {
  return new RequestRecord(facts, model, { requestOf: () => null, names: () => {}, onClosed: () => {} });
}

/** Milliseconds by cause as JSON; leaves out causes without any. */
function byName(ms: Float64Array): Readonly<Record<string, number>> {
  const entries = causes.map(({ name }, index) => [name, rounded(ms[index]!)] as const);
  return Object.fromEntries(entries.filter(([, part]) => part > 0));
}

function rounded(ms: number): number {
  return Math.round(1000 * ms) / 1000;
}

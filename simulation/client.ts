import type { Clock } from "../base/clock.ts";
import type { TokenId } from "../base/token.ts";
import { type EngineId, type Finish, greedySampling, type SequenceSpec } from "../scheduler/core.ts";
import type { Estimate } from "../scheduler/explain/outlook.ts";
import type { Story } from "../scheduler/explain/sequence-story.ts";
import type { SequenceListener } from "../scheduler/fleet/fleet.ts";
import type { PlacementReason } from "../scheduler/fleet/placement.ts";
import type { RequestRecord } from "./report.ts";
import type { Arrival } from "./workload.ts";

/** Observer of all clients of a simulation. */
export interface ClientObserver {
  /** Called at the first admission of a call. */
  onStarted(call: SimulatedClient): void;
  /** Receives a token. `gapMs`: time since the token before; null for the first. */
  onToken(call: SimulatedClient, token: TokenId, gapMs: number | null): void;
  onFinish(call: SimulatedClient): void;
}

/** Simulated client with one request: receives its tokens and records when they come. */
export class SimulatedClient implements SequenceListener {
  readonly index: number;
  readonly arrival: Arrival;
  readonly promptTokens: number;
  readonly arrivedMs: number;
  /** Engine of the last placement, and its reason; null: not placed yet. */
  engine: EngineId | null = null;
  reason: PlacementReason = "only";
  readonly tokens: TokenId[] = [];
  startedMs: number | null = null;
  firstMs: number | null = null;
  lastMs = 0;
  cachedTokens = 0;
  longestGapMs = 0;
  finish: Finish | null = null;
  finishedMs = 0;
  /** Breakdown of its time by cause, once it has ended. */
  story: Story | null = null;
  /** Estimate of its first token at its arrival; null: none was made. */
  estimate: Estimate | null = null;
  /** Number of times that the call was sent to an engine. */
  placements = 0;
  readonly #clock: Clock;
  readonly #observer: ClientObserver;

  constructor(index: number, arrival: Arrival, promptTokens: number, clock: Clock, observer: ClientObserver) {
    this.index = index;
    this.arrival = arrival;
    this.promptTokens = promptTokens;
    this.arrivedMs = clock.nowMs();
    this.#clock = clock;
    this.#observer = observer;
  }

  onStarted(cachedTokens: number): void {
    if (this.startedMs !== null) return;
    this.startedMs = this.#clock.nowMs();
    this.cachedTokens = cachedTokens;
    this.#observer.onStarted(this);
  }

  onToken(token: TokenId): void {
    const nowMs = this.#clock.nowMs();
    let gapMs: number | null = null;
    if (this.firstMs === null) this.firstMs = nowMs;
    else {
      gapMs = nowMs - this.lastMs;
      if (gapMs > this.longestGapMs) this.longestGapMs = gapMs;
    }
    this.lastMs = nowMs;
    this.tokens.push(token);
    this.#observer.onToken(this, token, gapMs);
  }

  onFinish(finish: Finish, _: unknown, story: Story): void {
    this.finish = finish;
    this.story = story;
    this.finishedMs = this.#clock.nowMs();
    this.#observer.onFinish(this);
  }

  record(): RequestRecord {
    return {
      kind: this.arrival.kind,
      tenant: this.arrival.service.tenant,
      engine: this.engine,
      reason: this.reason,
      arrivedMs: this.arrivedMs,
      startedMs: this.startedMs,
      firstMs: this.firstMs,
      finishedMs: this.finish === null ? this.#clock.nowMs() : this.finishedMs,
      promptTokens: this.promptTokens,
      cachedTokens: this.cachedTokens,
      outputTokens: this.tokens.length,
      longestGapMs: this.longestGapMs,
      finish: this.finish === null ? "unfinished" : this.finish.kind,
    };
  }
}

/**
 * Makes the sequence that a client submits. It ends with `stopToken`; its seed is its index, by which the
 * device knows its client.
 */
export function sequenceOf(
  { index, arrival }: SimulatedClient,
  promptTokens: Int32Array,
  stopToken: TokenId,
): Omit<SequenceSpec, "id"> {
  return {
    promptTokens,
    sampling: { ...greedySampling, temperature: 1, seed: [index, 0] },
    stop: { tokensMax: arrival.tokensMax, tokensMin: 0, stopTokens: [stopToken] },
    cacheSalt: arrival.cacheSalt,
    adapter: arrival.adapter ?? 0,
    drawnTokens: [],
    service: arrival.service,
  };
}

/** True if two arrivals are placed together. */
export function isSameTaskGroup(a: Arrival, b: Arrival): boolean {
  return a.service.taskGroup !== null && a.service.taskGroup === b.service.taskGroup && a.atMs === b.atMs;
}

/** Queue orders by session, all within the same fair shares of tenants. */

import { assert } from "../../base/assert.ts";
import type { Objective } from "../../scheduler/core.ts";
import { ArrivalList } from "../../scheduler/engine/queue/arrival-list.ts";
import { FirstCome } from "../../scheduler/engine/queue/first-come.ts";
import type { QueueOrder } from "../../scheduler/engine/queue/queue-order.ts";
import { Tenants } from "../../scheduler/engine/queue/tenants.ts";
import type { Sequence } from "../../scheduler/engine/sequence.ts";
import { ours } from "../../scheduler/policies.ts";
import type { QueueBaseline } from "../../scheduler/policy.ts";

/** First come, first served among one tenant's sequences. */
export function firstCome(): QueueBaseline {
  return byTenant(() => new FirstCome());
}

/** Sequences of the session that came first are next, as in Continuum (arXiv:2511.02230). */
export function firstSession(): QueueBaseline {
  const begun = new Map<number, number>();
  return byTenant(() => new FirstSession(begun));
}

/** Program-level attained service in levels (PLAS of Autellix, arXiv:2502.13965 §4.2). */
export function attainedService(): QueueBaseline {
  const service = new AttainedService();
  return byTenant(() => new AttainedLevels(service));
}

/** Highest response ratio next, across all tenants (SGLang's `hrrn`). */
export function highestRatio(): QueueBaseline {
  return { kind: "baseline", open: (lookUp) => new HighestRatio(lookUp) };
}

function byTenant(orderOf: () => QueueOrder): QueueBaseline {
  return { kind: "baseline", open: () => new ByTenant(orderOf) };
}

/** Order within our shares of tenants, for sequences of the latency objective only. */
class ByTenant extends Tenants implements QueueOrder {
  readonly separatesObjectives = true;

  constructor(orderOf: () => QueueOrder) {
    const { tenantSlack, tenantReach } = ours().queue;
    super(tenantSlack, tenantReach, orderOf);
  }

  override peek(nowMs: number, passed?: ReadonlySet<Objective>): Sequence | null {
    return passed?.has("latency") === true ? null : super.peek(nowMs);
  }
}

/** Id of a sequence's session, for a subagent that of its agent; null: it has none. */
function sessionOf({ service: { session } }: Sequence): number | null {
  return session === null ? null : (session.parent ?? session.id);
}

/** Tokens that were computed for each session, on all engines that share this object. */
class AttainedService {
  readonly #sessions = new Map<number, { tokens: number; readonly running: Set<Sequence> }>();

  of(sequence: Sequence): number {
    const id = sessionOf(sequence);
    const session = id === null ? undefined : this.#sessions.get(id);
    if (session === undefined) return 0;
    for (const one of session.running) {
      if (one.state !== "ended") continue;
      session.tokens += one.generated;
      session.running.delete(one);
    }
    return session.tokens;
  }

  taken(sequence: Sequence, computedTokens: number): void {
    const id = sessionOf(sequence);
    if (id === null) return;
    const session = this.#sessions.get(id) ?? { tokens: 0, running: new Set() };
    session.tokens += computedTokens;
    session.running.add(sequence);
    this.#sessions.set(id, session);
  }
}

const LEVELS = 10;
/** Service of a session in the first level; each level is twice as wide as the one before. */
const LEVEL_TOKENS = 1024;
/**
 * Milliseconds of waiting per token of its session's service after which a sequence is served as in the first
 * level.
 */
const PROMOTED_MS = 1;

/**
 * Levels by attained service: the first non-empty level is served, each level in order of arrival. Our
 * choices: levels count tokens, and a running sequence is never preempted for one of a lower level.
 */
class AttainedLevels implements QueueOrder {
  readonly #service: AttainedService;
  readonly #levels = Array.from({ length: LEVELS }, () => new ArrivalList<Sequence>());

  constructor(service: AttainedService) {
    this.#service = service;
  }

  get size(): number {
    return this.#levels.reduce((sum, { size }) => sum + size, 0);
  }

  add(sequence: Sequence): void {
    const level = 32 - Math.clz32(this.#service.of(sequence) / LEVEL_TOKENS);
    this.#levels[Math.min(LEVELS - 1, level)]!.add(sequence);
  }

  remove(sequence: Sequence): boolean {
    return this.#levels.some((level) => level.remove(sequence));
  }

  peek(nowMs: number): Sequence | null {
    let promoted: Sequence | null = null;
    for (const { first } of this.#levels) {
      if (first === undefined || (promoted !== null && promoted.arrival < first.arrival)) continue;
      if (nowMs - first.arrivedMs >= PROMOTED_MS * this.#service.of(first)) promoted = first;
    }
    return promoted ?? this.#levels.find(({ size }) => size > 0)?.first ?? null;
  }

  take(sequence: Sequence, computedTokens: number): void {
    assert(this.remove(sequence), "the sequence waits");
    this.#service.taken(sequence, computedTokens);
  }
}

/** Sessions by their first arrival on any engine; a sequence without one is a session of its own. */
class FirstSession implements QueueOrder {
  readonly #begun: Map<number, number>;
  /** The next one first. */
  readonly #waiting: { readonly sequence: Sequence; readonly begunMs: number }[] = [];

  constructor(begun: Map<number, number>) {
    this.#begun = begun;
  }

  get size(): number {
    return this.#waiting.length;
  }

  add(sequence: Sequence): void {
    const id = sessionOf(sequence);
    const begunMs = (id === null ? undefined : this.#begun.get(id)) ?? sequence.arrivedMs;
    if (id !== null) this.#begun.set(id, begunMs);
    const at = this.#waiting.findIndex((other) => other.begunMs > begunMs);
    this.#waiting.splice(at === -1 ? this.#waiting.length : at, 0, { sequence, begunMs });
  }

  remove(sequence: Sequence): boolean {
    const at = this.#waiting.findIndex((one) => one.sequence === sequence);
    if (at !== -1) this.#waiting.splice(at, 1);
    return at !== -1;
  }

  peek(): Sequence | null {
    return this.#waiting[0]?.sequence ?? null;
  }

  take(sequence: Sequence): void {
    assert(this.remove(sequence), "the next sequence is taken");
  }
}

/** Order by response ratio: wait divided by the tokens that the sequence has to compute. */
class HighestRatio implements QueueOrder {
  readonly #lookUp: (sequence: Sequence) => number;
  readonly #waiting = new ArrivalList<Sequence>();

  constructor(lookUp: (sequence: Sequence) => number) {
    this.#lookUp = lookUp;
  }

  get size(): number {
    return this.#waiting.size;
  }

  add(sequence: Sequence): void {
    this.#waiting.add(sequence);
  }

  remove(sequence: Sequence): boolean {
    return this.#waiting.remove(sequence);
  }

  peek(nowMs: number): Sequence | null {
    let best: Sequence | null = null;
    let bestRatio = Number.NEGATIVE_INFINITY;
    for (const sequence of this.#waiting) {
      const ratio = (nowMs - sequence.arrivedMs + 1) / (sequence.length - this.#lookUp(sequence));
      if (ratio > bestRatio) [best, bestRatio] = [sequence, ratio];
    }
    return best;
  }

  take(sequence: Sequence): void {
    assert(this.remove(sequence), "the next sequence is taken");
  }
}

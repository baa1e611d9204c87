import type { EngineId } from "../core.ts";
import type { E2Policy } from "../policy.ts";
import type { IndexSpan } from "./index-span.ts";

/** Sequences of each half window below which their waiting says nothing. */
const WAITS_MIN = 4;

/** What a span that several sequences pass through brings: a window's work per engine, and how long they wait. */
class Heat {
  readonly #windowMs: number;
  readonly #current: Float64Array;
  readonly #previous: Float64Array;
  #sinceMs = 0;
  /** Milliseconds and number of waits in this half window and the one before. */
  #waits = [0, 0];
  #waitsBefore = [0, 0];
  #waitsSinceMs = 0;

  constructor(engines: number, windowMs: number) {
    this.#windowMs = windowMs;
    this.#current = new Float64Array(engines);
    this.#previous = new Float64Array(engines);
  }

  add(engine: number, ms: number, nowMs: number): void {
    this.#roll(nowMs);
    this.#current[engine]! += ms;
  }

  /** Work of about the last window on one engine. */
  loadMs(engine: number, nowMs: number): number {
    this.#roll(nowMs);
    const left = 1 - (nowMs - this.#sinceMs) / this.#windowMs;
    return this.#current[engine]! + left * this.#previous[engine]!;
  }

  sumMs(nowMs: number): number {
    let sum = 0;
    for (let engine = 0; engine < this.#current.length; engine++) sum += this.loadMs(engine, nowMs);
    return sum;
  }

  waited(ms: number, nowMs: number): void {
    this.#rollWaits(nowMs);
    this.#waits[0]! += ms;
    this.#waits[1]! += 1;
  }

  /** How many times as long its sequences wait as half a window ago; 0 when too few tell. */
  waitRatio(nowMs: number): number {
    this.#rollWaits(nowMs);
    const [ms, count] = this.#waits as [number, number];
    const [msBefore, countBefore] = this.#waitsBefore as [number, number];
    if (count < WAITS_MIN || countBefore < WAITS_MIN || msBefore === 0) return 0;
    return ms / count / (msBefore / countBefore);
  }

  #roll(nowMs: number): void {
    const elapsed = nowMs - this.#sinceMs;
    if (elapsed < this.#windowMs) return;
    if (elapsed < 2 * this.#windowMs) this.#previous.set(this.#current);
    else this.#previous.fill(0);
    this.#current.fill(0);
    this.#sinceMs = nowMs - (elapsed % this.#windowMs);
  }

  #rollWaits(nowMs: number): void {
    const half = this.#windowMs / 2;
    const elapsed = nowMs - this.#waitsSinceMs;
    if (elapsed < half) return;
    this.#waitsBefore = elapsed < 2 * half ? this.#waits : [0, 0];
    this.#waits = [0, 0];
    this.#waitsSinceMs = nowMs - (elapsed % half);
  }
}

interface Redirect {
  readonly engine: EngineId;
  readonly untilMs: number;
  /** Work of the prefix when it was moved: the redirect ends when half of it is left. */
  readonly sumMs: number;
}

/** An engine as far as its load goes. */
export interface EngineLoadMs {
  readonly engine: EngineId;
  /** Of all that was placed there in the window. */
  readonly loadMs: number;
  /** L, as placements see it. */
  readonly liveMs: number;
}

/**
 * Repair of what single placements cannot see: a prefix that overloads its engine is moved to the lightest (redirect),
 * and one that is too hot for any single engine gets a second one (replicate). Preble, arXiv:2407.00023 §3.2; there
 * everything on the heaviest engine moves, which only carries the overload over. A redirect is from a prefix to an
 * engine, and is not followed further: there are no cycles.
 */
export class Rebalancer {
  readonly #policy: E2Policy;
  readonly #engines: number;
  readonly #heats = new Map<IndexSpan, Heat>();
  readonly #redirects = new Map<IndexSpan, Redirect>();
  /** Prefixes whose next sequence goes to another engine, and until when none is made again. */
  readonly #replicas = new Set<IndexSpan>();
  readonly #replicated = new Map<IndexSpan, number>();
  #sweepAt = 1024;

  constructor(policy: E2Policy, engines: number) {
    this.#policy = policy;
    this.#engines = engines;
  }

  get redirects(): number {
    return this.#redirects.size;
  }

  /** A sequence was placed whose path ends with `end`, and of which the first `knownPages` had been there before. */
  placed(end: IndexSpan, knownPages: number, engine: EngineId, ms: number, nowMs: number): void {
    for (let span = end; span.parent !== null; span = span.parent) {
      if (span.first >= knownPages) continue;
      let heat = this.#heats.get(span);
      if (heat === undefined) {
        heat = new Heat(this.#engines, this.#policy.windowMs);
        this.#heats.set(span, heat);
      }
      heat.add(engine, ms, nowMs);
    }
    if (this.#heats.size > this.#sweepAt) this.#sweep(nowMs);
  }

  /** A sequence whose path ends with `end` waited that long to be admitted. */
  waited(end: IndexSpan, ms: number, nowMs: number): void {
    for (let span = end; span.parent !== null; span = span.parent) this.#heats.get(span)?.waited(ms, nowMs);
  }

  /** Where the prefix that ends with `span` was moved to; null: nowhere. */
  redirectOf(span: IndexSpan): EngineId | null {
    return this.#redirects.get(this.#redirected(span) ?? span)?.engine ?? null;
  }

  /** Whether the next sequence with this prefix is to go to another engine; true once. */
  takeReplica(end: IndexSpan): boolean {
    if (this.#replicas.size === 0) return false;
    for (let span = end; span.parent !== null; span = span.parent) {
      if (this.#replicas.delete(span)) return true;
    }
    return false;
  }

  /** Nothing is moved there any more. */
  lost(engine: EngineId): void {
    for (const [span, redirect] of this.#redirects) {
      if (redirect.engine === engine) this.#redirects.delete(span);
    }
  }

  /** Looks at the loads of at least two engines and decides what moves. */
  review(loads: readonly EngineLoadMs[], nowMs: number): void {
    for (const [span, { untilMs, sumMs }] of this.#redirects) {
      const heat = this.#heats.get(span);
      if (nowMs > untilMs || heat === undefined || heat.sumMs(nowMs) < sumMs / 2) {
        this.#redirects.delete(span);
      }
    }
    const { rebalance, replicate } = this.#policy;
    const left = loads.map((load) => ({ ...load }));
    for (let moves = 0; rebalance !== null && moves < left.length; moves++) {
      const { heavy, light } = extremes(left);
      const difference = heavy.loadMs - light.loadMs;
      if (heavy.loadMs <= rebalance.ratio * light.loadMs || difference <= rebalance.marginMs) return;
      // An engine that had more to do, and has done it, is no reason to compute anything twice.
      if (heavy.liveMs - light.liveMs <= rebalance.marginMs) return;
      const moved = this.#redirect(heavy, light.engine, difference / 2, nowMs);
      if (moved === 0) break;
      heavy.loadMs -= moved;
      light.loadMs += moved;
    }
    if (replicate !== null) this.#replicate(left, replicate.ratio, nowMs);
  }

  /** Moves the prefix that brings the heavy engine most, but less than `limitMs`. Returns its part of the load. */
  #redirect(heavy: EngineLoadMs, engine: EngineId, limitMs: number, nowMs: number): number {
    let chosen: IndexSpan | null = null;
    let most = 0;
    for (const [span, heat] of this.#heats) {
      const part = heat.loadMs(heavy.engine, nowMs);
      if (part <= most || part >= limitMs || this.#redirected(span) !== null) continue;
      chosen = span;
      most = part;
    }
    if (chosen === null) return 0;
    const sumMs = this.#heats.get(chosen)!.sumMs(nowMs);
    this.#redirects.set(chosen, { engine, untilMs: nowMs + 2 * this.#policy.windowMs, sumMs });
    return most;
  }

  /** Marks the prefix that is more than the difference between the engines by itself, and waits ever longer. */
  #replicate(loads: readonly EngineLoadMs[], ratio: number, nowMs: number): void {
    const { heavy, light } = extremes(loads);
    const difference = heavy.loadMs - light.loadMs;
    if (difference <= 0) return;
    for (const [span, heat] of this.#heats) {
      if (heat.loadMs(heavy.engine, nowMs) <= difference || heat.waitRatio(nowMs) < ratio) continue;
      if (nowMs < (this.#replicated.get(span) ?? 0)) continue;
      this.#replicated.set(span, nowMs + this.#policy.windowMs / 2);
      this.#replicas.add(span);
    }
  }

  /** The deepest span of the path that is redirected. */
  #redirected(end: IndexSpan): IndexSpan | null {
    if (this.#redirects.size === 0) return null;
    for (let span = end; span.parent !== null; span = span.parent) {
      if (this.#redirects.has(span)) return span;
    }
    return null;
  }

  #sweep(nowMs: number): void {
    for (const [span, heat] of this.#heats) {
      if (heat.sumMs(nowMs) > 0) continue;
      this.#heats.delete(span);
      this.#replicas.delete(span);
      this.#replicated.delete(span);
    }
    this.#sweepAt = Math.max(1024, 2 * this.#heats.size);
  }
}

function extremes<Load extends EngineLoadMs>(
  loads: readonly Load[],
): { readonly heavy: Load; readonly light: Load } {
  let heavy = loads[0]!;
  let light = heavy;
  for (const load of loads) {
    if (load.loadMs > heavy.loadMs) heavy = load;
    if (load.loadMs < light.loadMs) light = load;
  }
  return { heavy, light };
}

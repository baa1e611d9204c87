import type { CacheSnapshot } from "../../scheduler/cache/cache-snapshot.ts";
import type { EngineId } from "../../scheduler/core.ts";
import type { EngineLoad, EngineReport } from "../../scheduler/messages.ts";
import type { StepBar } from "./state-events.ts";

/** Maximum steps kept of each engine. */
const STEPS_MAX = 512;
/** Milliseconds for which steps and snapshots are kept after a client last read them. */
const LOOK_MS = 3000;

type Snapshots = (CacheSnapshot | null)[];

interface EngineSteps {
  before: EngineLoad | null;
  /** The last steps, oldest first. */
  readonly steps: StepBar[];
  /** Number of the step after the last. */
  next: number;
}

/** Recent steps and prefix-cache snapshots of a model's engines, kept while a client streams the state. */
export class ActivityLog {
  /** Target of the inter-token latency (`--tbt-ms`); null: there is none. */
  readonly targetMs: number | null;
  /** The last snapshots of the prefix caches by engine; null: none was taken. */
  readonly caches: Snapshots;
  readonly #engines: readonly EngineSteps[];
  /** Snapshots of one API key's nodes, kept while a client reads them. */
  readonly #own = new Map<string, { readonly caches: Snapshots; lookedMs: number }>();
  #lookedMs = Number.NEGATIVE_INFINITY;

  constructor(engines: number, targetMs: number | null) {
    this.targetMs = targetMs;
    this.caches = Array.from({ length: engines }, () => null);
    this.#engines = Array.from({ length: engines }, () => ({ before: null, steps: [], next: 0 }));
  }

  /** Called after each report of an engine. Ignores a report without a new step. */
  note(engine: EngineId, report: EngineReport): void {
    const kept = this.#engines[engine]!;
    const { before } = kept;
    kept.before = report.load;
    const nowMs = performance.now();
    if (nowMs - this.#lookedMs > LOOK_MS || before === null) return;
    if (report.load.stepsTotal <= before.stepsTotal) return;
    kept.steps.push(barOf(report, before, nowMs));
    kept.next += 1;
    if (kept.steps.length > STEPS_MAX) kept.steps.shift();
  }

  /**
   * Returns the steps of an engine from number `from` on, and the number to ask for next. Consecutive steps are
   * added up until there are at most `max`. Steps are recorded for LOOK_MS after each call.
   */
  stepsFrom(engine: number, from: number, max: number): { readonly steps: StepBar[]; readonly next: number } {
    this.#lookedMs = performance.now();
    const { steps, next } = this.#engines[engine]!;
    return { steps: joined(steps.slice(Math.max(0, steps.length - (next - from))), max), next };
  }

  /** Stores a requested snapshot of an engine's prefix cache. `owner`: of one API key's nodes; null: of all. */
  noteCache(engine: EngineId, snapshot: CacheSnapshot, owner: string | null): void {
    const caches = owner === null ? this.caches : this.#own.get(owner)?.caches;
    if (caches !== undefined) caches[engine] = snapshot;
  }

  /** The last snapshots of one API key's nodes, by engine. They are kept for LOOK_MS after each call. */
  ownCaches(owner: string): Readonly<Snapshots> {
    const nowMs = performance.now();
    for (const [other, { lookedMs }] of this.#own) if (nowMs - lookedMs > LOOK_MS) this.#own.delete(other);
    const kept = this.#own.get(owner) ?? { caches: this.caches.map(() => null), lookedMs: nowMs };
    kept.lookedMs = nowMs;
    this.#own.set(owner, kept);
    return kept.caches;
  }

  get engines(): number {
    return this.#engines.length;
  }
}

function barOf(
  { load, sequences, warmed, checked }: EngineReport,
  before: EngineLoad,
  nowMs: number,
): StepBar {
  const decodes = new Set(sequences).size;
  const warm = warmed.reduce((sum, { tokens }) => sum + tokens, 0);
  const drafts = checked.reduce((sum, { tokens }) => sum + tokens, 0);
  return [
    Math.round(10 * nowMs) / 10,
    Math.round(100 * load.stepMs) / 100,
    decodes,
    Math.max(0, load.stepTokens - decodes - warm - drafts),
    warm,
    drafts,
    load.evictedPagesTotal - before.evictedPagesTotal,
    load.preemptionsTotal - before.preemptionsTotal,
    load.stepsOverTarget - before.stepsOverTarget,
  ];
}

/** Adds up consecutive steps until there are at most `max`. Durations and counts are summed; the last end is kept. */
function joined(steps: StepBar[], max: number): StepBar[] {
  const together = Math.ceil(steps.length / Math.max(1, max));
  if (together <= 1) return steps;
  const bars: StepBar[] = [];
  for (let at = 0; at < steps.length; at += together) {
    const some = steps.slice(at, at + together);
    const bar = [...some[0]!] as [...StepBar];
    for (const other of some.slice(1)) {
      bar[0] = other[0];
      for (let field = 1; field < bar.length; field++) bar[field]! += other[field]!;
    }
    bars.push(bar);
  }
  return bars;
}

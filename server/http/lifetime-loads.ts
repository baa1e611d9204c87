import type { EngineId } from "../../scheduler/core.ts";
import type { EngineLoad } from "../../scheduler/messages.ts";

const totals = [
  "stepsTotal",
  "promptTokensTotal",
  "generatedTokensTotal",
  "prefixQueriedTotal",
  "prefixHitTotal",
  "preemptionsTotal",
  "stepsOverTarget",
  "skippedDecodesTotal",
  "evictedPagesTotal",
] as const satisfies readonly (keyof EngineLoad)[];

type Total = (typeof totals)[number];

/** Loads whose totals go on growing when an engine is replaced, whose own begin at nothing again. */
export class LifetimeLoads {
  readonly #current: () => readonly EngineLoad[];
  /** By engine: what its earlier lives came to. */
  readonly #before = new Map<EngineId, Readonly<Record<Total, number>>>();

  /** `current`: of the engines as they are, by engine. */
  constructor(current: () => readonly EngineLoad[]) {
    this.#current = current;
  }

  /** To be told before the fleet uses the engine's next life. */
  replaced(engine: EngineId): void {
    const load = this.loads()[engine]!;
    const record = Object.fromEntries(totals.map((name) => [name, load[name]]));
    this.#before.set(engine, record as Record<Total, number>);
  }

  /** By engine. */
  loads(): readonly EngineLoad[] {
    return this.#current().map((load, engine) => {
      const before = this.#before.get(engine as EngineId);
      if (before === undefined) return load;
      return { ...load, ...Object.fromEntries(totals.map((name) => [name, load[name] + before[name]])) };
    });
  }
}

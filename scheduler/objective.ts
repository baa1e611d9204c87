import type { Objective, Service } from "./core.ts";

/**
 * Rules by which the lane of an SLO class shares prompt tokens with the other lanes (engine/queue/lanes.ts).
 */
export interface LaneRules {
  /** Weight > 0: while several lanes wait, each gets prompt tokens in proportion to its credits. */
  readonly credits: number;
  /**
   * Milliseconds after which a waiting sequence is aged: admission lets no other overtake it for lack of
   * room.
   */
  readonly ageingMs: number;
}

/** Scheduling rules of an SLO class. */
export interface ObjectiveRules extends LaneRules {
  readonly name: Objective;
  /**
   * Precedence 0, 1 or 2: the planner computes prompts of lower numbers first and preempts their sequences
   * last.
   */
  readonly precedence: number;
  /**
   * True if sequences of one tenant and priority are admitted in order of arrival, false if by response
   * ratio.
   */
  readonly isFirstCome: boolean;
  /**
   * True if clients read the tokens as they come. The policy's default TBT target then applies; without a
   * target, steps beside its decodes stay short.
   */
  readonly isInteractive: boolean;
  /**
   * True for offline work, which uses what online work leaves. It has no target, steps may skip its decodes,
   * and its prompts hardly lengthen steps of interactive streams.
   */
  readonly isOffline: boolean;
}

/** Rules of every SLO class; the only place that defines them. */
export const objectives: Readonly<Record<Objective, ObjectiveRules>> = {
  latency: {
    name: "latency",
    precedence: 0,
    credits: 8,
    ageingMs: 10_000,
    isFirstCome: false,
    isInteractive: true,
    isOffline: false,
  },
  // Members arrive together: first come, first served finishes one task group before the next begins.
  gang: {
    name: "gang",
    precedence: 1,
    credits: 4,
    ageingMs: 60_000,
    isFirstCome: true,
    isInteractive: false,
    isOffline: false,
  },
  throughput: {
    name: "throughput",
    precedence: 2,
    credits: 1,
    ageingMs: 600_000,
    isFirstCome: false,
    isInteractive: false,
    isOffline: true,
  },
};

/** SLO classes by precedence. */
export const objectiveOrder: readonly ObjectiveRules[] = [
  objectives.latency,
  objectives.gang,
  objectives.throughput,
];

/**
 * Returns a service at least as good as both: the more urgent SLO class with its task group, and the tighter
 * targets. The tenant stays. Returns `current` itself if it is as good already.
 */
export function raised(current: Service, wanted: Service): Service {
  const ahead = objectives[current.objective].precedence - objectives[wanted.objective].precedence;
  const { objective, taskGroup } = ahead > 0 ? wanted : current;
  const ttftMs = tighter(current.ttftMs, wanted.ttftMs);
  const tbtMs = tighter(current.tbtMs, wanted.tbtMs);
  const isSame = ahead <= 0 && ttftMs === current.ttftMs && tbtMs === current.tbtMs;
  return isSame ? current : { ...current, objective, taskGroup, ttftMs, tbtMs };
}

function tighter(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

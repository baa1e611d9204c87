import type { Objective, Service } from "./core.ts";

/** How the waiting sequences of one objective share prompt tokens with those of the others (engine/queue/lanes.ts). */
export interface LaneRules {
  /** > 0. While several objectives wait, each gets prompt tokens in proportion to its credits. */
  readonly credits: number;
  /** A sequence that has waited longer than this is aged: no other is admitted before it for want of room. */
  readonly ageingMs: number;
}

/** What an objective means to the scheduler. */
export interface ObjectiveRules extends LaneRules {
  readonly name: Objective;
  /** 0, 1, 2: prompts of a lower number are computed first, and its sequences are preempted last. */
  readonly precedence: number;
  /** Whether sequences of one tenant and priority are admitted in order of arrival; else by response ratio. */
  readonly isFirstCome: boolean;
  /** Whether its tokens are read as they come: the policy's default target holds for it, and without a target the
   *  steps beside its decodes stay short. */
  readonly isInteractive: boolean;
  /** Whether it takes what the others leave: it has no target, its decodes may be left out of steps, and its prompts
   *  hardly lengthen the steps of interactive streams. */
  readonly isOffline: boolean;
}

/** Every objective and its meaning: the one place that says so. */
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
  // Members arrive together; by arrival one task group is finished before the next begins.
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

/** By precedence. */
export const objectiveOrder: readonly ObjectiveRules[] = [
  objectives.latency,
  objectives.gang,
  objectives.throughput,
];

/** A service that is at least as good as both: the more urgent objective with its task group, the tighter targets. Whose sequence it is does not change.
 *  `current` itself where it is as good already. */
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

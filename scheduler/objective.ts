import type { Objective, Service } from "./core.ts";

/** Rules by which one objective shares prompt tokens with the others (engine/queue/lanes.ts). */
export interface LaneRules {
  /** Weight > 0: while several objectives wait, each gets prompt tokens in proportion to its credits. */
  readonly credits: number;
  /** Time after which a waiting sequence is aged: no other is admitted before it for want of room. */
  readonly ageingMs: number;
}

/** Rules of an objective. */
export interface ObjectiveRules extends LaneRules {
  readonly name: Objective;
  /** Rank 0, 1 or 2: prompts of a lower number are computed first, and its sequences are preempted last. */
  readonly precedence: number;
  /** Whether sequences of one tenant and priority are admitted in order of arrival; else by response ratio. */
  readonly isFirstCome: boolean;
  /** Whether its tokens are read as they come: the policy's default target holds for it, and without a target the
   *  steps beside its decodes stay short. */
  readonly isInteractive: boolean;
  /** Whether it is offline work, which uses what the others leave: it has no target, its decodes may be left out of steps, and its prompts hardly
   *  lengthen the steps of interactive streams. */
  readonly isOffline: boolean;
}

/** The rules of every objective. */
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

/** Objectives by precedence. */
export const objectiveOrder: readonly ObjectiveRules[] = [
  objectives.latency,
  objectives.gang,
  objectives.throughput,
];

/** Combines two services into one that is at least as good as both: the more urgent objective with its task group, and the tighter targets. The
 *  tenant stays. Returns `current` itself where it is as good already. */
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

import type { SequenceId } from "../../core.ts";
import type { SequenceView } from "./step-budget.ts";
import type { StepPrediction } from "./step-prediction.ts";

/**
 * Leaves as few offline decodes out of a step as `limitMs` asks for, and returns them. Those that were left
 * out least of late come first, so that they take turns, and of those the longest. Decodes whose turn must
 * come within `skipsMax` steps are spread over these steps: else they would all come in one.
 */
export function leaveOut(
  step: StepPrediction,
  running: readonly SequenceView[],
  skipsMax: number,
  limitMs: number,
): ReadonlySet<SequenceId> {
  const skipped = new Set<SequenceId>();
  if (step.ms <= limitMs) return skipped;
  const offline = running.filter(
    ({ objective, isDecoding, isPaused }) => objective.isOffline && isDecoding && !isPaused,
  );
  const leastSkips = offline.reduce((least, { pacing }) => Math.min(least, pacing.skips), skipsMax);
  const isDue = leastSkips + 1 >= Math.floor((skipsMax + 1) / offline.length);
  const due = isDue ? Math.ceil(offline.length / (skipsMax + 1)) : 0;
  const candidates = offline.filter(({ pacing }) => pacing.skips < skipsMax);
  candidates.sort((a, b) => a.pacing.skips - b.pacing.skips || b.length - a.length || a.id - b.id);
  for (const { id, length } of candidates.slice(0, offline.length - due)) {
    skipped.add(id);
    step.leaveOut(length);
    if (step.ms <= limitMs) break;
  }
  return skipped;
}

import type { SequenceView, StepView } from "./step-rule.ts";

/** Number of sequences, and the tokens of their contexts. */
interface Load {
  count: number;
  context: number;
}

/** The sequences of a step, summed up. Streams are interactive sequences; untargeted ones have no target. */
export class StepLoad {
  /** All running sequences, including those that this step admits. */
  readonly offline: Load = { count: 0, context: 0 };
  readonly online: Load = { count: 0, context: 0 };
  streams = 0;
  untargetedStreams = 0;
  /** The tightest target; Infinity: there is none. */
  tightestMs = Number.POSITIVE_INFINITY;
  /** The decodes, as the step was begun. */
  readonly decodes: Load = { count: 0, context: 0 };
  readonly onlineDecodes: Load = { count: 0, context: 0 };
  untargetedDecodes = 0;
  /** Time at which the first of them misses its target; Infinity: none has one. */
  deadlineMs = Number.POSITIVE_INFINITY;
  /** Number of prompts that are unfinished or wait. */
  prompts: number;
  readonly #defaultTbtMs: number | null;

  /** `defaultTbtMs`: the target of streams that ask for none. */
  constructor({ running, backlog }: StepView, defaultTbtMs: number | null) {
    this.#defaultTbtMs = defaultTbtMs;
    this.prompts = backlog.waiting;
    for (const sequence of running) {
      if (sequence.isPaused) continue;
      this.join(sequence);
      if (sequence.isDecoding) this.#addDecode(sequence);
      else if (backlog.countsOffline || !sequence.objective.isOffline) this.prompts += 1;
    }
  }

  /** Adds a running sequence. */
  join(sequence: SequenceView): void {
    const { objective, length } = sequence;
    add(objective.isOffline ? this.offline : this.online, length);
    if (objective.isInteractive) this.streams += 1;
    const targetMs = this.targetOf(sequence);
    if (targetMs !== null) this.tightestMs = Math.min(this.tightestMs, targetMs);
    else if (objective.isInteractive) this.untargetedStreams += 1;
  }

  /** The target of a sequence: its own, or the default of streams. Null: none. */
  targetOf({ objective, tbtMs }: SequenceView): number | null {
    if (objective.isOffline) return null;
    return tbtMs ?? (objective.isInteractive ? this.#defaultTbtMs : null);
  }

  #addDecode(sequence: SequenceView): void {
    const { objective, length, pacing } = sequence;
    add(this.decodes, length);
    if (!objective.isOffline) add(this.onlineDecodes, length);
    const targetMs = this.targetOf(sequence);
    if (targetMs === null) {
      if (objective.isInteractive) this.untargetedDecodes += 1;
    } else if (pacing.lastTokenMs !== Number.NEGATIVE_INFINITY) {
      this.deadlineMs = Math.min(this.deadlineMs, pacing.lastTokenMs + targetMs);
    }
  }
}

function add(load: Load, length: number): void {
  load.count += 1;
  load.context += length;
}

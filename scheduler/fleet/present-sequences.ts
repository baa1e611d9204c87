/** Summaries of the sequences that have not ended, wherever they are. */
import type { AdapterId, Objective, SequenceSpec } from "../core.ts";

/** Part of a sequence that the summaries need. */
export interface PresentSequence {
  readonly spec: Pick<SequenceSpec, "adapter" | "promptTokens" | "service">;
  /** True after its engine has admitted it. */
  readonly isStarted: boolean;
  readonly isAborted: boolean;
}

/** Waiting sequences of one objective and tenant. */
export interface QueueRow {
  readonly objective: Objective;
  readonly tenant: string;
  readonly waiting: number;
  readonly promptTokens: number;
}

/** Adapters of the sequences that engines have admitted, and of those that wait. 0 stands for none. */
export interface PresentAdapters {
  readonly running: ReadonlySet<AdapterId>;
  readonly waiting: ReadonlySet<AdapterId>;
}

/** Sequences that no engine has admitted yet, by objective and tenant; the largest groups first. */
export function queueOf(sequences: Iterable<PresentSequence>): readonly QueueRow[] {
  const rows = new Map<string, { -readonly [Key in keyof QueueRow]: QueueRow[Key] }>();
  for (const { spec, isStarted, isAborted } of sequences) {
    if (isStarted || isAborted) continue;
    const { objective, tenant } = spec.service;
    const key = `${objective} ${tenant}`;
    const row = rows.get(key) ?? { objective, tenant, waiting: 0, promptTokens: 0 };
    row.waiting += 1;
    row.promptTokens += spec.promptTokens.length;
    rows.set(key, row);
  }
  return [...rows.values()].sort((a, b) => b.waiting - a.waiting);
}

/** Adapters that sequences have now. */
export function adaptersOf(sequences: Iterable<PresentSequence>): PresentAdapters {
  const adapters = { running: new Set<AdapterId>(), waiting: new Set<AdapterId>() };
  for (const { spec, isStarted } of sequences) adapters[isStarted ? "running" : "waiting"].add(spec.adapter);
  return adapters;
}

import type { SequenceId } from "../core.ts";
import type { StepBudget } from "./step-budget.ts";

/** What the planner needs to know of a sequence. */
export interface Behind {
  readonly id: SequenceId;
  /** Tokens known but not computed, ≥ 1; 1 means decoding. */
  readonly behind: number;
  readonly computed: number;
  /** Gets no tokens. */
  readonly isPaused: boolean;
  /** 0: latency, 1: gang, 2: throughput. */
  readonly lane: number;
  /** When it last had a chunk, or arrived. */
  readonly lastChunkMs: number;
}

/** The next `count` ≥ 1 tokens of a sequence. */
export interface PlannedChunk<S> {
  readonly sequence: S;
  readonly count: number;
}

/** Every decode but those that the budget leaves out. Costs O(running). */
export function planDecodes<S extends Behind>(
  running: readonly S[],
  skipped: ReadonlySet<SequenceId>,
): PlannedChunk<S>[] {
  const chunks: PlannedChunk<S>[] = [];
  for (const sequence of running) {
    if (sequence.behind !== 1 || sequence.isPaused) continue;
    if (skipped.size > 0 && skipped.has(sequence.id)) continue;
    chunks.push({ sequence, count: 1 });
  }
  return chunks;
}

/**
 * Chunks of the unfinished prompts among `running`, then of new sequences, which `admit` yields one by one, with a
 * chunk that the budget has granted (null: no more now). Several prompts may be partly done at once. Prompts come in
 * order of arrival, with lanes those of the first lane first.
 *
 * After `planDecodes` this is stall-free batching (Sarathi-Serve, arXiv:2403.02310 §4.2, Algorithm 3): every decode is
 * in every step, and prompts get what is left. Unlike in the paper's code a chunk is never empty or negative. Costs
 * O(running + admitted).
 */
export function planPrompts<S extends Behind>(
  running: readonly S[],
  admit: () => PlannedChunk<S> | null,
  budget: StepBudget,
  options: { readonly hasLanes: boolean; readonly nowMs: number },
): PlannedChunk<S>[] {
  const chunks: PlannedChunk<S>[] = [];
  const prompts = running.filter(({ behind, isPaused }) => behind > 1 && !isPaused);
  // A stable sort: inside a lane the order of arrival stays.
  if (options.hasLanes) prompts.sort((a, b) => a.lane - b.lane);
  for (const sequence of prompts) {
    const { behind, computed, lastChunkMs } = sequence;
    const count = budget.offer(behind, computed, options.nowMs - lastChunkMs);
    if (count === 0) break;
    budget.take(count, computed);
    chunks.push({ sequence, count });
  }
  if (chunks.length < prompts.length) return chunks;
  for (let chunk = admit(); chunk !== null; chunk = admit()) chunks.push(chunk);
  return chunks;
}

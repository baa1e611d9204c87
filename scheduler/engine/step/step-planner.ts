import type { SequenceId } from "../../core.ts";
import type { ObjectiveRules } from "../../objective.ts";
import type { StepBudget } from "./step-budget.ts";

/** What the planner needs to know of a sequence. */
export interface Behind {
  readonly id: SequenceId;
  /** Tokens known but not computed, ≥ 1. */
  readonly behind: number;
  /** Whether its next chunk continues its output. */
  readonly isDecoding: boolean;
  readonly computed: number;
  /** Gets no tokens. */
  readonly isPaused: boolean;
  readonly objective: ObjectiveRules;
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
    if (!sequence.isDecoding || sequence.isPaused) continue;
    if (skipped.size > 0 && skipped.has(sequence.id)) continue;
    chunks.push({ sequence, count: 1 });
  }
  return chunks;
}

/** Who might be admitted before this unfinished prompt, the first of all. */
export interface Overtaking<S> {
  readonly prompt: S;
  /** It has got no chunk for so long that none of its objective passes it. */
  readonly isFirm: boolean;
  /** It has waited so long that nobody of its tenant passes it. */
  readonly isAged: boolean;
}

/** How prompts come to their turn. */
export interface PromptOrder<S> {
  readonly hasLanes: boolean;
  /** Whether new prompts go before unfinished ones that have much more left. */
  readonly overtakes: boolean;
  /** Whether it has waited so long that nobody goes before it any more. */
  isAged(sequence: S): boolean;
  readonly nowMs: number;
}

/** A prompt that has got no chunk for so long is not passed any longer. */
const PATIENCE_MS = 2000;

/**
 * Chunks of the unfinished prompts among `running`, then of new sequences, which `admit` yields one by one, with a
 * chunk that the budget has granted (null: no more now). Several prompts may be partly done at once. Prompts come in
 * order of arrival, with lanes those of the first objective first.
 *
 * After `planDecodes` this is stall-free batching (Sarathi-Serve, arXiv:2403.02310 §4.2, Algorithm 3): every decode is
 * in every step, and prompts get what is left. Unlike in the paper's code a chunk is never empty or negative. Costs
 * O(running + admitted).
 *
 * A long prompt takes many steps, and everybody behind it would wait for all of them. So with `overtakes` the shorter
 * of unfinished prompts comes first, and `admit` is asked first for whoever has less to compute than the first of them has
 * left: nobody waits for another's prompt for much more than its own would take. Whoever has aged goes before those, and
 * so does whoever has had no chunk for two seconds.
 */
export function planPrompts<S extends Behind>(
  running: readonly S[],
  admit: (overtaking: Overtaking<S> | null) => PlannedChunk<S> | null,
  budget: StepBudget,
  order: PromptOrder<S>,
): PlannedChunk<S>[] {
  const prompts = running.filter(({ isDecoding, isPaused }) => !isDecoding && !isPaused);
  const isStarving = (one: S): boolean => order.nowMs - one.lastChunkMs >= PATIENCE_MS;
  const isFirm = (one: S): boolean => isStarving(one) || order.isAged(one);
  // Stable sorts: what they leave open is in order of arrival.
  if (order.overtakes) prompts.sort((a, b) => rank(a, isFirm(a)) - rank(b, isFirm(b)));
  if (order.hasLanes) prompts.sort((a, b) => a.objective.precedence - b.objective.precedence);

  const chunks: PlannedChunk<S>[] = [];
  const first = prompts[0];
  if (order.overtakes && first !== undefined) {
    const overtaking = { prompt: first, isFirm: isStarving(first), isAged: order.isAged(first) };
    for (let chunk = admit(overtaking); chunk !== null; chunk = admit(overtaking)) chunks.push(chunk);
  }
  let isFull = false;
  for (const sequence of prompts) {
    const { behind, computed, lastChunkMs, objective } = sequence;
    const count = budget.offer(behind, computed, order.nowMs - lastChunkMs, objective);
    isFull = count === 0;
    if (isFull) break;
    budget.take(count, computed);
    chunks.push({ sequence, count });
  }
  if (isFull) return chunks;
  for (let chunk = admit(null); chunk !== null; chunk = admit(null)) chunks.push(chunk);
  return chunks;
}

/** Firm ones first, then the shortest. */
function rank({ behind }: Behind, isFirm: boolean): number {
  return isFirm ? 0 : behind;
}

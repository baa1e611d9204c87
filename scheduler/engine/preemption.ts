import { assert } from "../../base/assert.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceTable } from "./sequence-table.ts";

/**
 * Preemption by recompute (as in vLLM, arXiv:2309.06180 §4.5, and Sarathi-Serve). When a decode needs a page and none
 * is free or evictable, it preempts a running sequence. Unlike theirs the victim keeps its output tokens and their
 * count towards `tokensMax`, so that its answer does not change. The cache takes over its computed pages, so that
 * its readmission mostly hits the cache.
 *
 * Decodes get their pages in order of arrival, and take them from the youngest sequence. The oldest (with
 * lanes: of the first objective) therefore always advances, and no sequence is preempted twice for one step.
 * A decode with room in its last page preempts none.
 *
 * Returns whether any sequence was preempted.
 */
export function securePages(table: SequenceTable): boolean {
  const { running, kvCache, queue } = table;
  const growing = running.filter(
    (sequence) => sequence.isDecoding && !sequence.isPaused && kvCache.needsPage(sequence),
  );
  let hasPreempted = false;
  for (const sequence of growing) {
    while (sequence.state === "running" && !kvCache.grow(sequence)) {
      if (kvCache.releaseOldestHeld()) continue;
      table.preempt(chooseVictim(running, queue.separatesObjectives));
      hasPreempted = true;
    }
  }
  return hasPreempted;
}

/**
 * Chooses the youngest paused sequence, as a slow client misses its pages least; else the youngest of all,
 * with lanes of the last objective that has any.
 */
function chooseVictim(running: readonly Sequence[], separatesObjectives: boolean): Sequence {
  const victim = youngestPaused(running) ?? running.at(-1);
  assert(victim !== undefined, "a sequence that needs a page is running, and can give way itself");
  if (!separatesObjectives || victim.isPaused) return victim;
  let last = victim;
  for (let i = running.length - 1; i >= 0 && !last.objective.isOffline; i--) {
    if (running[i]!.objective.precedence > last.objective.precedence) last = running[i]!;
  }
  return last;
}

/** The paused sequence that arrived last; undefined if none of them is paused. */
export function youngestPaused(running: readonly Sequence[]): Sequence | undefined {
  return running.findLast((sequence) => sequence.isPaused);
}

/**
 * The offline sequence that is preempted for online ones: the youngest; undefined if there is none, or a
 * single one that has aged.
 */
export function yieldingOffline({ running, queue }: SequenceTable, nowMs: number): Sequence | undefined {
  const last = running.findLast(({ objective }) => objective.isOffline);
  if (last === undefined || !queue.isAged(last, nowMs)) return last;
  return running.find(({ objective }) => objective.isOffline) === last ? undefined : last;
}

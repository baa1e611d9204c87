import { assert } from "../../base/assert.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceTable } from "./sequence-table.ts";

/**
 * Preemption by recompute (Sarathi-Serve's and vLLM's): when a decode needs a page and none is free or
 * evictable, a running sequence gives its pages up. Unlike theirs the victim keeps its output tokens and its count towards
 * `tokensMax`, so it neither over-generates nor changes what it says, and what it computed goes to the cache,
 * so that coming back is mostly a hit.
 *
 * Running sequences are in order of arrival; a decode is given its page in that order and takes it from the
 * youngest. The oldest (with lanes: of the first objective) therefore always advances, and nothing is preempted twice for
 * one step. No page is asked for before it is needed: a decode inside of its last page preempts none.
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
      table.preempt(chooseVictim(running, queue.hasLanes));
      hasPreempted = true;
    }
  }
  return hasPreempted;
}

/** The youngest of the paused (a slow reader's pages are the cheapest to miss); else the youngest of all, with lanes of
 *  the last objective that has any. */
function chooseVictim(running: readonly Sequence[], hasLanes: boolean): Sequence {
  const victim = youngestPaused(running) ?? running.at(-1);
  assert(victim !== undefined, "a sequence that needs a page is running, and can give way itself");
  if (!hasLanes || victim.isPaused) return victim;
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

/** The offline sequence that makes way for online work: the one that arrived last; undefined if there is none, or one alone that has aged. */
export function yieldingOffline({ running, queue }: SequenceTable, nowMs: number): Sequence | undefined {
  const last = running.findLast(({ objective }) => objective.isOffline);
  if (last === undefined || !queue.isAged(last, nowMs)) return last;
  return running.find(({ objective }) => objective.isOffline) === last ? undefined : last;
}

import type { SequenceId } from "../core.ts";
import type { Blocker } from "./time-account.ts";

/** Spans kept at most. */
const SPANS_MAX = 64;

interface Span {
  readonly sequence: SequenceId;
  readonly startMs: number;
  endMs: number;
}

/** The sequences with the largest prompt chunk in recent steps: they delayed the waiting ones most. */
export class Blockers {
  /** Oldest first. */
  readonly #spans: Span[] = [];

  /** Adds a step. Null: it had no chunk of a prompt. */
  add(sequence: SequenceId | null, startMs: number, endMs: number): void {
    if (sequence === null) return;
    const last = this.#spans.at(-1);
    if (last?.sequence === sequence) last.endMs = endMs;
    else this.#spans.push({ sequence, startMs, endMs });
    if (this.#spans.length > SPANS_MAX) this.#spans.shift();
  }

  /** Returns the prompt that was the largest for the longest part of a wait; `known` if that was longer. */
  longest(fromMs: number, toMs: number, known: Blocker | null): Blocker | null {
    let longest = known;
    for (const { sequence, startMs, endMs } of this.#spans) {
      const ms = Math.min(endMs, toMs) - Math.max(startMs, fromMs);
      if (ms > (longest?.ms ?? 0)) longest = { sequence, ms };
    }
    return longest;
  }
}

import type { Sequence } from "../sequence.ts";

/** Cold sequences go before warm ones for at most 1 / `COLD_PART` of the time. */
export const COLD_PART = 4;

/** A sequence with a smaller part of its prompt to compute takes next to nothing from others. */
const LITTLE_PART = 8;

/** True if half of its prompt or more is cached. */
export function isWarm({ length, cachedTokens }: Sequence): boolean {
  return cachedTokens * 2 >= length;
}

/** The queries that a gate makes to its engine. */
export interface GateParts {
  /** Predicts how long `tokens` of a prompt take after `context` others. */
  computeMs(tokens: number, context: number): number;
  /** True if the sequence would evict pages that waiting sequences will read. */
  displaces(sequence: Sequence): boolean;
}

/**
 * Bounds how often a cold sequence, most of whose prompt is not cached, goes before a waiting warm one. Under
 * memory pressure a cold sequence evicts the pages that warm ones were about to read. When all have waited
 * for long, prefixes would evict each other in turn, and each sequence would compute its prefix again.
 *
 * When a cold sequence is taken, the gate closes for `COLD_PART` times as long as that one takes to compute.
 * So cached prefixes are read before they are evicted. However many prefixes take turns, at most a quarter of
 * the time goes into other prefixes while warm sequences wait. Sequences that wait for the same prefix are
 * warm as soon as it is computed, and go with the first of them.
 *
 * There is one gate for all sequences that share the pages of a device.
 */
export class ColdGate {
  readonly #parts: GateParts;
  #closedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(parts: GateParts) {
    this.#parts = parts;
  }

  isOpen(nowMs: number): boolean {
    return nowMs >= this.#closedUntilMs;
  }

  /**
   * True if a sequence lets other tenants' sequences overtake it: it has much to compute, and would evict
   * pages that they will read.
   */
  holdsBack(sequence: Sequence, nowMs: number): boolean {
    const left = sequence.length - sequence.cachedTokens;
    const isMuch = left * LITTLE_PART > sequence.length;
    return isMuch && !this.isOpen(nowMs) && this.#parts.displaces(sequence);
  }

  /** Records that a sequence is admitted. */
  taken(sequence: Sequence, nowMs: number): void {
    if (isWarm(sequence)) return;
    const { length, cachedTokens } = sequence;
    const tookMs = this.#parts.computeMs(length - cachedTokens, cachedTokens);
    this.#closedUntilMs = nowMs + COLD_PART * tookMs;
  }
}

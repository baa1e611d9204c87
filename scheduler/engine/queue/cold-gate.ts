import type { Sequence } from "../sequence.ts";

/** Cold sequences go before warm ones for one part in so many of the time at most. */
export const COLD_PART = 4;

/** A sequence that has less than one part in so many of its prompt to compute takes next to nothing from others. */
const LITTLE_PART = 8;

/** Whether half of its prompt or more is cached. */
export function isWarm({ length, cachedTokens }: Sequence): boolean {
  return cachedTokens * 2 >= length;
}

/** What a gate needs to know of its engine. */
export interface GateParts {
  /** Milliseconds that so many tokens of a prompt after `context` others take. */
  computeMs(tokens: number, context: number): number;
  /** Whether it would take pages that waiting sequences will read. */
  displaces(sequence: Sequence): boolean;
}

/**
 * Bounds how often a cold sequence, most of whose prompt is not cached, goes before a warm one that waits. Under memory pressure
 * it takes the pages that warm ones were about to read: when all have waited for long, prefixes would evict each other in turn, and
 * each sequence would compute what had been there before.
 *
 * When a cold sequence is taken, the gate closes for `COLD_PART` times as long as that one takes to compute. So cached prefixes
 * are read before they are evicted, and however many prefixes take turns, at most a quarter of the time goes into computing others
 * while warm sequences wait. Those that wait for the same prefix are warm as soon as it is computed, and go with the first of them.
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

  /** Whether a sequence lets other tenants' pass: it has much to compute, and would take pages that waiting sequences will read. */
  holdsBack(sequence: Sequence, nowMs: number): boolean {
    const left = sequence.length - sequence.cachedTokens;
    const isMuch = left * LITTLE_PART > sequence.length;
    return isMuch && !this.isOpen(nowMs) && this.#parts.displaces(sequence);
  }

  /** The sequence is taken. */
  taken(sequence: Sequence, nowMs: number): void {
    if (isWarm(sequence)) return;
    const { length, cachedTokens } = sequence;
    const tookMs = this.#parts.computeMs(length - cachedTokens, cachedTokens);
    this.#closedUntilMs = nowMs + COLD_PART * tookMs;
  }
}

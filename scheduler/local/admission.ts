import type { Finish, PageCopy, SequenceSpec, TokenId } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineOptions } from "../engine-options.ts";
import { findOwner } from "./prefix-pending.ts";
import type { Residency } from "./residency.ts";
import type { Sequence } from "./sequence.ts";
import type { WaitQueue } from "./wait-queue.ts";

/** Tokens of the longest sequence, prompt and output together, that could ever run here. */
export function lengthLimit(spec: DeviceSpec): number {
  return Math.min(spec.contextMax, spec.pages * spec.pageTokens);
}

/** Why a sequence is refused on arrival; null if it may wait. What can never run must not wait: it would
 *  block the queue. */
export function refusal(
  spec: SequenceSpec,
  device: DeviceSpec,
  waiting: number,
  queueMax: number,
): Finish | null {
  const { promptTokens, drawnTokens } = spec;
  if (promptTokens.length === 0) return { kind: "failed", reason: "The prompt has no tokens." };
  const needed = promptTokens.length + drawnTokens.length + 1;
  const limit = lengthLimit(device);
  if (needed > limit) return { kind: "rejected", reason: "neverFits", needed, limit };
  if (waiting >= queueMax) {
    return { kind: "rejected", reason: "queueFull", needed: waiting + 1, limit: queueMax };
  }
  const unknown = unknownToken(promptTokens, device.vocabSize) ?? unknownToken(drawnTokens, device.vocabSize);
  if (unknown === null) return null;
  return {
    kind: "failed",
    reason: `Prompt token ${unknown} is not in the vocabulary of ${device.vocabSize}.`,
  };
}

function unknownToken(tokens: ArrayLike<TokenId>, vocabSize: number): number | null {
  for (let i = 0; i < tokens.length; i++) {
    const token = tokens[i]!;
    if (!Number.isInteger(token) || token < 0 || token >= vocabSize) return token;
  }
  return null;
}

/**
 * What became of the sequence whose turn it is.
 *
 *   admitted   it holds pages for all its known tokens; its first step makes `copy`, if any
 *   parked     it waits for `owner` to compute the prefix they share: the next one may try
 *   blocked    no room for it: nobody else may pass it, or large prompts would starve
 *   none       nobody waits whose time has come
 */
export type Admission =
  | { readonly kind: "admitted"; readonly sequence: Sequence; readonly copy: PageCopy | null }
  | { readonly kind: "parked"; readonly sequence: Sequence; readonly owner: Sequence }
  | { readonly kind: "blocked" }
  | { readonly kind: "none" };

/**
 * Tries to admit one sequence: its whole prompt is reserved at once, less what is cached (Sarathi-Serve;
 * admitting by the next chunk only makes long prompts thrash), and a page for every running sequence and the
 * watermark stay available for decodes. With nobody else resident there is nothing to keep room for, and
 * everything that `refusal` let in fits.
 */
export function admitNext(
  queue: WaitQueue,
  running: readonly Sequence[],
  residency: Residency,
  options: EngineOptions,
  nowMs: number,
  step: number,
): Admission {
  // With nothing to run there is nothing to stay out of the way of.
  const isIdle = running.every((resident) => resident.isPaused);
  const sequence = queue.peek(nowMs, isIdle ? Number.POSITIVE_INFINITY : step);
  if (sequence === null) return { kind: "none" };
  if (running.length >= options.admission.sequencesMax) return { kind: "blocked" };

  residency.lookUp(sequence);
  const { pageTokens, pagesTotal } = residency.pool;
  const shared = findOwner(sequence, running, pageTokens, options.sharedTokensMin);
  if (shared !== null) {
    queue.park(sequence, shared.owner, shared.tokens);
    return { kind: "parked", sequence, owner: shared.owner };
  }

  const isAlone = running.length === 0;
  const headroom = isAlone ? 0 : running.length + Math.ceil(options.admission.watermark * pagesTotal);
  const fits = residency.fits(sequence, headroom);
  if (!fits && !isAlone) return { kind: "blocked" };
  queue.take(sequence);
  return { kind: "admitted", sequence, copy: residency.settle(sequence, fits) };
}

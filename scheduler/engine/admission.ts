import type { Residency } from "../cache/residency.ts";
import type { Finish, PageMove, SequenceSpec, TokenId } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineOptions } from "./engine-options.ts";
import { findOwner } from "./queue/prefix-pending.ts";
import type { WaitQueue } from "./queue/wait-queue.ts";
import type { Sequence } from "./sequence.ts";
import type { StepBudget } from "./step/step-budget.ts";
import type { Overtaking } from "./step/step-planner.ts";

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
 *   admitted   it holds pages for all its known tokens, and `tokens` of them are in the step, which makes `move` first,
 *              if any
 *   parked     it waits for `owner` to compute the prefix they share: the next one may try
 *   blocked    no room for it: nobody else may pass it, or large prompts would starve
 *   none       nobody waits whose time has come, or the step is full
 */
export type Admission =
  | {
      readonly kind: "admitted";
      readonly sequence: Sequence;
      readonly tokens: number;
      readonly move: PageMove | null;
    }
  | { readonly kind: "parked"; readonly sequence: Sequence; readonly owner: Sequence }
  | { readonly kind: "blocked" }
  | { readonly kind: "none" };

/** What admission goes by. */
export interface AdmissionState {
  readonly queue: WaitQueue;
  readonly running: readonly Sequence[];
  /** Of these, whoever has more than one token to compute. */
  readonly prompts: readonly Sequence[];
  readonly residency: Residency;
  readonly options: EngineOptions;
  readonly budget: StepBudget;
  readonly nowMs: number;
  /** Number of the step that is being planned. */
  readonly step: number;
  /** Null: anybody may be admitted. */
  readonly overtaking: Overtaking<Sequence> | null;
}

/**
 * Tries to admit one sequence: its whole prompt is reserved at once, less what is cached (Sarathi-Serve;
 * admitting by the next chunk only makes long prompts thrash), and a page for every running sequence and the
 * watermark stay available for decodes. With nobody else resident there is nothing to keep room for, and
 * everything that `refusal` let in fits.
 *
 * With lanes, a sequence that does not fit is passed by those of other objectives, until it has aged.
 */
export function admitNext(state: AdmissionState): Admission {
  const { queue, running, prompts, residency, options, budget, nowMs, step, overtaking } = state;
  const { admission, sharedTokensMin } = options;
  // With nothing to run there is nothing to stay out of the way of.
  const isIdle = running.every((resident) => resident.isPaused);
  for (;;) {
    const sequence = queue.peek(nowMs, isIdle ? Number.POSITIVE_INFINITY : step);
    if (sequence === null) return { kind: queue.hasPassed ? "blocked" : "none" };
    if (running.length >= admission.sequencesMax) return { kind: "blocked" };

    const { cachedTokens } = sequence;
    const left = sequence.length - cachedTokens;
    if (overtaking !== null && !mayOvertake(sequence, left, overtaking)) return { kind: "none" };
    const shared = admission.prefixPending
      ? findOwner(sequence, prompts, residency.pool.pageTokens, sharedTokensMin)
      : null;
    if (shared !== null) {
      queue.park(sequence, shared.owner, shared.tokens);
      return { kind: "parked", sequence, owner: shared.owner };
    }

    const tokens = budget.offer(left, cachedTokens, nowMs - sequence.lastChunkMs, sequence.objective);
    if (tokens === 0) return { kind: "none" };
    const isAged = queue.isAged(sequence, nowMs);
    if (!budget.admits(sequence, isAged)) {
      if (queue.pass(sequence)) continue;
      return { kind: "none" };
    }

    const isAlone = running.length === 0;
    const fits = residency.fits(sequence, isAlone ? 0 : headroomOf(state));
    if (!fits && !isAlone) {
      if (!isAged && queue.pass(sequence)) continue;
      return { kind: "blocked" };
    }
    queue.take(sequence, left);
    const move = residency.settle(sequence, fits);
    budget.join(sequence);
    budget.take(tokens, sequence.computed);
    return { kind: "admitted", sequence, tokens, move };
  }
}

/** Whether a sequence with `left` tokens to compute may be admitted before an unfinished prompt: if it is of an earlier
 *  objective; if it is shorter, and its tenant has used no more; or if its tenant will have used no more even then. So a crowd of
 *  one tenant's passes another's long prompt only until they are even, and another's prompt need not wait for the crowd's. */
function mayOvertake(
  { objective, account }: Sequence,
  left: number,
  { prompt, isFirm, isAged }: Overtaking<Sequence>,
): boolean {
  const ahead = prompt.objective.precedence - objective.precedence;
  if (ahead !== 0) return ahead > 0;
  if (isFirm) return false;
  const isShorter = left < prompt.behind;
  if (account === null || account === prompt.account) return isShorter && !isAged;
  return account.used + (isShorter ? 0 : left) <= prompt.account!.used;
}

/** Pages that stay available. */
function headroomOf({ running, residency, options: { admission } }: AdmissionState): number {
  const watermark = Math.ceil(admission.watermark * residency.pool.pagesTotal);
  return admission.headroom ? running.length + watermark : watermark;
}

import type { Draft, DraftSource } from "../../scheduler/draft/drafter.ts";
import type { DraftBaseline } from "../../scheduler/policy.ts";
import { answerToken } from "../answer-token.ts";
import { nameOf } from "../workloads/parts.ts";

/** Quality of the drafts for one kind of completion. */
export interface DraftCurve {
  /** Share of a completion's positions for which there is a draft. Such positions come in runs. */
  readonly share: number;
  /**
   * Probability that a draft's first token is right, and the factor by which it falls for each further token.
   */
  readonly first: number;
  readonly decay: number;
}

/** Positions in a run with drafts, or in one without. */
const RUN = 12;
/** Kinds of draft tokens: one per position in the draft. */
const PLACES = 16;
/** Estimated acceptance of a kind before any outcome is known. */
const PRIOR = 0.5;

/**
 * Drafts for a simulation's completions, right with given probabilities. `curveOf` gives the curve of a call
 * by its index; `seed` and `vocabSize` are those of the simulation.
 */
export function drawnDrafts(
  curveOf: (call: number) => DraftCurve,
  seed: number,
  vocabSize: number,
): DraftBaseline {
  const open: DraftSource["open"] = ({ sampling, promptTokens }) => {
    const call = sampling.seed[0];
    const { share, first, decay } = curveOf(call);
    return {
      draft: (_, length, most): Draft | null => {
        const position = length - promptTokens.length;
        if (unit(seed, call, Math.floor(position / RUN)) >= share) return null;
        const places = Array.from({ length: Math.min(most, PLACES) }, (_, place) => place);
        let chance = first;
        const tokens = places.map((place) => {
          const token = answerToken(seed, call, position + place, vocabSize);
          const isRight = unit(seed, call, position, place) < chance;
          chance *= decay;
          return isRight ? token : (token + 1) % vocabSize;
        });
        return { tokens, kinds: places };
      },
    };
  };
  return { kind: "baseline", open: () => ({ priors: new Array<number>(PLACES).fill(PRIOR), open }) };
}

/** Pseudo-random number in 0 … 1, a hash of the arguments. */
function unit(...numbers: readonly number[]): number {
  return nameOf(...numbers) / 2 ** 32;
}

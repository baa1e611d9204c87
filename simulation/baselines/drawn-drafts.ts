import type { Draft, DraftSource } from "../../scheduler/draft/drafter.ts";
import type { DraftBaseline } from "../../scheduler/policy.ts";
import { answerToken } from "../answer-token.ts";
import { nameOf } from "../workloads/parts.ts";

/** Quality of the drafts of one kind of answer. */
export interface DraftCurve {
  /** Share of the places of an answer for which there is a draft. Such places come in runs. */
  readonly share: number;
  /** Chance that the first token of a draft is right, and the factor by which each further one's is lower. */
  readonly first: number;
  readonly decay: number;
}

/** Places in a run with drafts, or without any. */
const RUN = 12;
/** Kinds of drafted tokens: their places in the draft. */
const PLACES = 16;
/** Chance of a token before anything is known of it. */
const PRIOR = 0.5;

/**
 * Drafts of a simulation's answers whose tokens are right with drawn chances. `curveOf` gives the curve of a
 * call by its index; `seed` and `vocabSize` are those of the simulation.
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

/** A number in 0 … 1 that depends on others. */
function unit(...numbers: readonly number[]): number {
  return nameOf(...numbers) / 2 ** 32;
}

import type { TokenId } from "../../base/token.ts";
import type { SequenceSpec } from "../../scheduler/core.ts";
import type { DraftBaseline } from "../../scheduler/policy.ts";

/**
 * Drafts that are right with a chance: they know the answers. `answerOf` gives the tokens that a sequence draws
 * after its prompt. A wrong token is the next of the vocabulary.
 */
export function oracleDrafts(
  answerOf: (spec: SequenceSpec) => readonly TokenId[],
  chance: number,
  vocabSize: number,
): DraftBaseline {
  return {
    kind: "baseline",
    open: () => ({
      priors: [chance],
      open: (spec) => {
        let answer: readonly TokenId[] | null = null;
        let drafts = 0;
        return {
          draft: (_, length, most) => {
            answer ??= answerOf(spec);
            drafts += 1;
            const position = length - spec.promptTokens.length;
            const rest = answer.slice(position, position + most);
            if (rest.length === 0) return null;
            const tokens = rest.map((token, index) =>
              unit(spec.id, drafts, index) < chance ? token : (token + 1) % vocabSize,
            );
            return { tokens, kinds: tokens.map(() => 0) };
          },
        };
      },
    }),
  };
}

/** A number in 0 … 1 that depends on three others. */
function unit(a: number, b: number, c: number): number {
  let x = Math.imul(a ^ 0x2545f491, 0x21f0aaad) ^ Math.imul(b + 1, 0x735a2d97) ^ Math.imul(c + 1, 0x9e3779b1);
  x = Math.imul(x ^ (x >>> 15), 0x21f0aaad);
  return ((x ^ (x >>> 15)) >>> 0) / 2 ** 32;
}

/**
 * Frequencies of rotary positions (RoPE, arXiv:2104.09864), and the scalings that lengthen the context.
 * Engines receive only the frequencies.
 */
import type { ModelShape, Rope } from "./shape.ts";

export interface Rotation {
  /** Radians per position of each pair, [dimensions / 2]. */
  readonly frequencies: Float64Array;
  /** Factor of cosines and sines. */
  readonly magnitude: number;
}

/**
 * Rotation of a model's heads when the server allows at most `contextMax` positions. Sequences share cached
 * keys, so one set of frequencies serves all positions. It is longrope's long set if a context may exceed the
 * original one.
 *
 *   linear    plain / factor (arXiv:2306.15595)
 *   llama3    plain for wavelengths below original / highFreqFactor, plain / factor for those above
 *             original / lowFreqFactor, between them a blend linear in original / wavelength
 *   yarn      plain for pairs that turn more than betaFast times in the original context, plain / factor for
 *             those that turn less than betaSlow times, between them a blend linear in the pair's number
 *             (arXiv:2309.00071)
 *   longrope  plain / a factor for each pair (arXiv:2402.13753)
 *   proportional  plain / factor for the first pairs, and 0 for the others
 */
export function rotationOf(rope: Rope, contextMax: number): Rotation {
  const { dimensions, theta } = rope;
  const plain = Float64Array.from(
    { length: dimensions / 2 },
    (_, pair) => theta ** ((-2 * pair) / dimensions),
  );
  switch (rope.kind) {
    case "plain":
      return { frequencies: plain, magnitude: 1 };
    case "linear":
      return { frequencies: plain.map((frequency) => frequency / rope.factor), magnitude: 1 };
    case "proportional":
      return {
        frequencies: plain.map((frequency, pair) => (pair < rope.turned ? frequency / rope.factor : 0)),
        magnitude: 1,
      };
    case "llama3":
      return { frequencies: plain.map((frequency) => llama3Frequency(rope, frequency)), magnitude: 1 };
    case "yarn": {
      const { first, last } = yarnRange(rope);
      const frequencies = plain.map((frequency, pair) => {
        const share = Math.min(1, Math.max(0, (pair - first) / (last - first)));
        return (frequency / rope.factor) * share + frequency * (1 - share);
      });
      return { frequencies, magnitude: rope.magnitude };
    }
    case "longrope": {
      const factors = contextMax > rope.originalContext ? rope.longFactors : rope.shortFactors;
      return {
        frequencies: plain.map((frequency, pair) => frequency / factors[pair]!),
        magnitude: rope.magnitude,
      };
    }
  }
}

/**
 * Longest sequence in tokens that a model's positions allow: its own, or what yarn makes of the context that
 * it was trained with.
 */
export function contextLimit({ contextMax, ropes }: Pick<ModelShape, "contextMax" | "ropes">): number {
  const scaled = ropes.flatMap((rope) => (rope.kind === "yarn" ? [rope.originalContext * rope.factor] : []));
  return scaled.length === 0 ? contextMax : Math.max(contextMax, Math.floor(Math.min(...scaled)));
}

function llama3Frequency(rope: Rope & { readonly kind: "llama3" }, frequency: number): number {
  const turns = (rope.originalContext * frequency) / (2 * Math.PI);
  if (turns < rope.lowFreqFactor) return frequency / rope.factor;
  if (turns > rope.highFreqFactor) return frequency;
  const kept = (turns - rope.lowFreqFactor) / (rope.highFreqFactor - rope.lowFreqFactor);
  return ((1 - kept) * frequency) / rope.factor + kept * frequency;
}

/** Range of pairs in which yarn blends. */
function yarnRange(rope: Rope & { readonly kind: "yarn" }): {
  readonly first: number;
  readonly last: number;
} {
  const { dimensions, theta, originalContext } = rope;
  const pairOfTurns = (turns: number): number =>
    (dimensions * Math.log(originalContext / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const first = pairOfTurns(rope.betaFast);
  const last = pairOfTurns(rope.betaSlow);
  const from = Math.max(0, rope.truncate ? Math.floor(first) : first);
  const to = Math.min(dimensions - 1, rope.truncate ? Math.ceil(last) : last);
  return { first: from, last: from === to ? to + 0.001 : to };
}

/** Yarn's factor of cosines and sines (arXiv:2309.00071, section 3.4). */
export function yarnMagnitude(factor: number, scale: number): number {
  return factor <= 1 ? 1 : 0.1 * scale * Math.log(factor) + 1;
}

/**
 * Factor of attention scores over latents with heads of `size`. With yarn a configuration's `mscale_all_dim`
 * (`scale` here; 0: none) scales queries and keys.
 */
export function latentScale(size: number, rope: Rope, scale: number): number {
  const magnitude = rope.kind === "yarn" && scale > 0 ? yarnMagnitude(rope.factor, scale) : 1;
  return size ** -0.5 * magnitude ** 2;
}

/** Longrope's factor of cosines and sines (arXiv:2402.13753, section 4). */
export function longropeMagnitude(factor: number, originalContext: number): number {
  return factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(originalContext));
}

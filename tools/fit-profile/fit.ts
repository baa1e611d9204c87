/** Fits tables and weights to measured times: staircases, and non-negative least squares. */

import type { ProfileTable } from "../../scheduler/cost/profile.ts";
import type { Attention, Point } from "./measured.ts";

/**
 * Mean of `ms` by `tokens`, made monotonic. Omits points that the next one covers, since a staircase has the
 * value of the next point at or above.
 */
export function staircase(points: readonly Point[]): ProfileTable["linear"] {
  const sums = new Map<number, { ms: number; count: number }>();
  for (const { tokens, ms } of points) {
    const sum = sums.get(tokens) ?? { ms: 0, count: 0 };
    sums.set(tokens, { ms: sum.ms + ms, count: sum.count + 1 });
  }
  const grid = [...sums.keys()].sort((a, b) => a - b);
  let highest = 0;
  const rising = grid.map((tokens) => {
    const { ms, count } = sums.get(tokens)!;
    highest = Math.max(highest, ms / count);
    return { tokens, ms: Number(highest.toFixed(3)) };
  });
  const kept = rising.filter(({ ms }, index) => ms !== rising[index + 1]?.ms);
  return { tokens: kept.map(({ tokens }) => tokens), ms: kept.map(({ ms }) => ms) };
}

function staircaseMs({ tokens, ms }: ProfileTable["linear"], count: number): number {
  return ms[tokens.findIndex((step) => step >= count)] ?? ms.at(-1)!;
}

/**
 * Non-negative weights that minimise the squares of (features · weights - target) × scale, by coordinate
 * descent.
 */
function fit(rows: readonly { features: readonly number[]; target: number; scale: number }[]): number[] {
  const size = rows[0]!.features.length;
  const gram = Array.from({ length: size }, () => new Float64Array(size));
  const goal = new Float64Array(size);
  for (const { features, target, scale } of rows) {
    for (let i = 0; i < size; i++) {
      goal[i]! += features[i]! * target * scale * scale;
      for (let j = 0; j < size; j++) gram[i]![j]! += features[i]! * features[j]! * scale * scale;
    }
  }
  const weights = new Array<number>(size).fill(0);
  for (let sweep = 0; sweep < 100_000; sweep++) {
    for (let i = 0; i < size; i++) {
      const diagonal = gram[i]![i]!;
      if (diagonal === 0) continue;
      let residual = goal[i]!;
      for (let j = 0; j < size; j++) residual -= gram[i]![j]! * weights[j]!;
      weights[i] = Math.max(0, weights[i]! + residual / diagonal);
    }
  }
  return weights.map((weight) => Number(weight.toPrecision(5)));
}

export const promptFeatures = ({ prompt, context }: Attention): number[] => [
  1,
  prompt,
  prompt * (context + prompt / 2),
  context,
];
export const decodeFeatures = ({ decodes, decodeContext }: Attention): number[] => [
  1,
  decodes,
  decodeContext,
];

/**
 * Fits attention to minimise the error of a whole step: errors are relative to attention plus linear layers
 * of the same tokens. Each batch or chunk size has the same total weight, independent of its number of
 * measurements.
 */
export function fitAttention(
  rows: readonly Attention[],
  linear: ProfileTable["linear"],
  layers: number,
  features: (row: Attention) => number[],
): { weights: number[]; errors: { p50: number; p90: number } } {
  const sizes = new Map<number, number>();
  const sizeOf = ({ prompt, decodes }: Attention): number => prompt + decodes;
  for (const row of rows) sizes.set(sizeOf(row), (sizes.get(sizeOf(row)) ?? 0) + 1);
  const stepMs = (row: Attention): number => row.ms + staircaseMs(linear, sizeOf(row)) / layers;
  const weights = fit(
    rows.map((row) => ({
      features: features(row),
      target: row.ms,
      scale: 1 / stepMs(row) / Math.sqrt(sizes.get(sizeOf(row))!),
    })),
  );
  const errors = rows
    .map((row) => {
      const predicted = features(row).reduce((sum, feature, i) => sum + feature * weights[i]!, 0);
      return Math.abs(predicted - row.ms) / stepMs(row);
    })
    .sort((a, b) => a - b);
  const share = (at: number): number => Number(errors[Math.floor(at * (errors.length - 1))]!.toFixed(4));
  return { weights, errors: { p50: share(0.5), p90: share(0.9) } };
}

/** Linear fit: cost of a step and of each token or row. */
export function fitLine(points: readonly Point[]): { readonly stepMs: number; readonly sequenceMs: number } {
  const [stepMs = 0, sequenceMs = 0] = fit(
    points.map(({ tokens, ms }) => ({ features: [1, tokens], target: ms, scale: 1 / ms })),
  );
  return { stepMs, sequenceMs };
}

/** Prediction interval of a time, meant to contain eight of ten outcomes. */
export interface Range {
  readonly expectedMs: number;
  readonly lowMs: number;
  readonly highMs: number;
}

/** Latest outcomes kept per size of prediction, and over all sizes. */
const KEPT = 128;
/** Fewest outcomes of a size for a range of its own; with fewer, all sizes together give it. */
const OWN_MIN = 16;
/** Quantiles of the range. */
const LOW = 0.1;
const MIDDLE = 0.5;
const HIGH = 0.9;
/** Ratios of outcome to prediction that count as observed before the first. */
const BELIEF: readonly number[] = [0.5, 0.7, 0.85, 1, 1, 1.2, 1.5, 2];
/** Upper end of the first size class of predictions; each later class ends at twice the time. */
const SMALLEST_MS = 10;
const SIZES = 16;

/**
 * Calibrates predictions by their outcomes (as conformal prediction does): ranges are quantiles of the latest ratios of
 * outcome to prediction, for predictions of about the same size. They hold as often as meant while the load is stable.
 */
export class Calibration {
  readonly #all: number[] = [...BELIEF];
  readonly #bySize: readonly number[][] = Array.from({ length: SIZES }, () => []);

  /** Records the outcome of a prediction > 0. */
  observe(predictedMs: number, ms: number): void {
    const ratio = ms / Math.max(1e-3, predictedMs);
    for (const ratios of [this.#all, this.#bySize[sizeOf(predictedMs)]!]) {
      ratios.push(ratio);
      if (ratios.length > KEPT) ratios.shift();
    }
  }

  /** The range of a prediction. */
  range(predictedMs: number): Range {
    const own = this.#bySize[sizeOf(predictedMs)]!;
    const ratios = (own.length >= OWN_MIN ? own : this.#all).toSorted((a, b) => a - b);
    const at = (quantile: number): number => predictedMs * between(ratios, quantile);
    return { expectedMs: at(MIDDLE), lowMs: at(LOW), highMs: at(HIGH) };
  }
}

function sizeOf(ms: number): number {
  let size = 0;
  for (let bound = SMALLEST_MS; bound < ms && size < SIZES - 1; bound *= 2) size += 1;
  return size;
}

/** Quantile of sorted values, interpolated at rank quantile × (n + 1). */
function between(sorted: readonly number[], quantile: number): number {
  const place = quantile * (sorted.length + 1) - 1;
  const below = Math.min(sorted.length - 1, Math.max(0, Math.floor(place)));
  const above = Math.min(sorted.length - 1, below + 1);
  const part = Math.min(1, Math.max(0, place - below));
  return sorted[below]! * (1 - part) + sorted[above]! * part;
}

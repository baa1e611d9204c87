import { assert } from "../base/assert.ts";
import { SeededRandom } from "../base/random.ts";

/** Noise of a shared machine: how step times differ from its cost model. */
export interface Noise {
  /** Standard deviation of a step's time as a share of it, 0 … 0.25; at most 3.5 times that in any step. */
  readonly deviation: number;
  /**
   * Share of the steps, 0 … 1, that take `outlierFactor` times as long: a garbage collection, a page read
   * from disk.
   */
  readonly outlierShare: number;
  readonly outlierFactor: number;
  /**
   * Half period of speed flips: each device alternates between its model's speed and `flipFactor` times as
   * slow. Null: no flips. Devices flip at different times.
   */
  readonly flipEveryMs: number | null;
  readonly flipFactor: number;
}

/** Noises by name: a quiet desktop, and a machine with heavy noise. */
export const noises = {
  mild: { deviation: 0.05, outlierShare: 0.001, outlierFactor: 5, flipEveryMs: null, flipFactor: 1 },
  rough: { deviation: 0.15, outlierShare: 0.003, outlierFactor: 10, flipEveryMs: 4000, flipFactor: 3 },
} as const satisfies Readonly<Record<string, Noise>>;

/** Name of a noise. */
export type NoiseName = keyof typeof noises;

/** All noise names. */
export const noiseNames = Object.keys(noises) as readonly NoiseName[];

/** Uniform draws in 0 … 1 that make one nearly normal number. Their sum has mean 2 and deviation 1 / √3. */
const DRAWS = 4;
const SCALE = 1.7320508075688772;

/** The noise of one device, step by step. The same seed gives the same factors on every machine. */
export class DeviceNoise {
  readonly #noise: Noise;
  readonly #random: SeededRandom;
  readonly #phaseMs: number;

  constructor(noise: Noise, seed: number) {
    const { deviation, outlierShare, outlierFactor, flipEveryMs, flipFactor } = noise;
    assert(deviation >= 0 && deviation <= 0.25, `a deviation is 0 … 0.25, not ${deviation}`);
    assert(outlierShare >= 0 && outlierShare <= 1, `a share is 0 … 1, not ${outlierShare}`);
    assert(outlierFactor > 0 && flipFactor > 0, "a factor is above 0");
    assert(flipEveryMs === null || flipEveryMs > 0, "flips have time between them");
    this.#noise = noise;
    this.#random = new SeededRandom(seed);
    this.#phaseMs = 2 * (flipEveryMs ?? 0) * this.#random.unit();
  }

  /** Draws the time of a step that starts now and would take `ms` undisturbed. */
  took(ms: number, nowMs: number): number {
    const { deviation, outlierShare, outlierFactor } = this.#noise;
    let sum = 0;
    for (let draw = 0; draw < DRAWS; draw++) sum += this.#random.unit();
    const isOutlier = this.#random.unit() < outlierShare;
    const factor = 1 + deviation * SCALE * (sum - DRAWS / 2);
    return this.#flipped(ms * (factor * (isOutlier ? outlierFactor : 1)), nowMs);
  }

  /**
   * Computes the time of a step in pieces, each at the speed of its period. With the speed of its start, long
   * steps would escape the flips.
   */
  #flipped(ms: number, nowMs: number): number {
    const { flipEveryMs, flipFactor } = this.#noise;
    if (flipEveryMs === null) return ms;
    const startMs = nowMs + this.#phaseMs;
    let leftMs = ms;
    let tookMs = 0;
    for (let period = Math.floor(startMs / flipEveryMs); ; period++) {
      const slowness = period % 2 === 1 ? flipFactor : 1;
      const roomMs = (period + 1) * flipEveryMs - startMs - tookMs;
      if (leftMs * slowness <= roomMs) return tookMs + leftMs * slowness;
      leftMs -= roomMs / slowness;
      tookMs += roomMs;
    }
  }
}

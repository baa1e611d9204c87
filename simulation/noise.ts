import { assert } from "../base/assert.ts";
import { SeededRandom } from "../base/random.ts";

/** How the steps of a machine that others use, too, differ from what its cost model says. */
export interface Noise {
  /** Standard deviation of a step's time as a share of it, 0 … 0.25; no step is off by more than 3.5 times that. */
  readonly deviation: number;
  /** This share of the steps, 0 … 1, takes `outlierFactor` times as long: a collector of garbage, a page read from disk. */
  readonly outlierShare: number;
  readonly outlierFactor: number;
  /** Each device is as fast as its model for so long, `flipFactor` times as slow for as long, and so on; null: always as
   *  fast. Devices flip at different times. */
  readonly flipEveryMs: number | null;
  readonly flipFactor: number;
}

/** Named noises: of a quiet desktop, and of a machine with heavy noise. */
export const noises = {
  mild: { deviation: 0.05, outlierShare: 0.001, outlierFactor: 5, flipEveryMs: null, flipFactor: 1 },
  rough: { deviation: 0.15, outlierShare: 0.003, outlierFactor: 10, flipEveryMs: 4000, flipFactor: 3 },
} as const satisfies Readonly<Record<string, Noise>>;

/** A noise with a name. */
export type NoiseName = keyof typeof noises;

/** All that there are. */
export const noiseNames = Object.keys(noises) as readonly NoiseName[];

/** So many draws, uniform in 0 … 1, make one that is nearly normal. Their sum has mean 2 and deviation 1 / √3. */
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

  /** What a step takes that starts now and would take `ms` where nothing disturbs it; draws. */
  took(ms: number, nowMs: number): number {
    const { deviation, outlierShare, outlierFactor } = this.#noise;
    let sum = 0;
    for (let draw = 0; draw < DRAWS; draw++) sum += this.#random.unit();
    const isOutlier = this.#random.unit() < outlierShare;
    const factor = 1 + deviation * SCALE * (sum - DRAWS / 2);
    return this.#flipped(ms * (factor * (isOutlier ? outlierFactor : 1)), nowMs);
  }

  /** Of a step in which the speed flips each part goes at its own speed: were it the speed of its start, long steps would escape it. */
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

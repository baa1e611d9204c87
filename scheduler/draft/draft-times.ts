import type { DeviceSpec } from "../device.ts";

/** Time of one token drafted by the model's own head, as a share of a step; a guess until steps are measured. */
const HEAD_SHARE = 0.12;
/** Weight of the latest step in the moving averages. */
const LATEST = 1 / 8;
/**
 * Cap on one measurement, as a multiple of the estimate. A preempted drafting pass takes many times as long. Uncapped,
 * one such pass could end drafting, and without drafts nothing corrects the estimate.
 */
const SURPRISE_MAX = 2;

/** Measured time of one drafting pass: the device drafts one more token for each sequence that asks for it. */
export class DraftTimes {
  #share: number;
  #passMs = 0;

  constructor({ draftModel }: Pick<DeviceSpec, "draftModel">) {
    this.#share = draftModel?.share ?? HEAD_SHARE;
  }

  /** Time of a pass as a share of a step without drafting. */
  get share(): number {
    return this.#share;
  }

  /** Time of a pass in milliseconds; 0 before the first measurement. */
  get passMs(): number {
    return this.#passMs;
  }

  /**
   * Learns from a step without prompts, in which the device ran `count` ≥ 1 drafting passes in `draftsMs` of its
   * `deviceMs`.
   */
  learn(count: number, draftsMs: number, deviceMs: number): void {
    if (draftsMs <= 0 || draftsMs >= deviceMs) return;
    const passMs = draftsMs / count;
    const decodeMs = deviceMs - draftsMs;
    this.#passMs = averaged(this.#passMs > 0 ? this.#passMs : this.#share * decodeMs, passMs);
    this.#share = averaged(this.#share, passMs / decodeMs);
  }
}

function averaged(estimate: number, measured: number): number {
  return estimate + LATEST * (Math.min(measured, SURPRISE_MAX * estimate) - estimate);
}

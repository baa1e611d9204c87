import type { DeviceSpec } from "../device.ts";

/** Time of one token drafted by the model's own head, as a share of a step; a guess until steps are measured. */
const HEAD_SHARE = 0.12;
/** Weight of the latest step in the moving averages. */
const LATEST = 1 / 8;

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
    this.#share += LATEST * (passMs / (deviceMs - draftsMs) - this.#share);
    this.#passMs += (this.#passMs === 0 ? 1 : LATEST) * (passMs - this.#passMs);
  }
}

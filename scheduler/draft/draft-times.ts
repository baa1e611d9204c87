import type { DeviceSpec } from "../device.ts";

/** Share of a step that a token takes which the model's own head drafts, before any was timed: a guess. */
const HEAD_SHARE = 0.12;
/** Weight of the latest step. */
const LATEST = 1 / 8;

/** Time that a device takes to draft one token for each sequence that wants one, as measured of late. */
export class DraftTimes {
  #share: number;
  #passMs = 0;

  constructor({ draftModel }: Pick<DeviceSpec, "draftModel">) {
    this.#share = draftModel?.share ?? HEAD_SHARE;
  }

  /** As a share of a step without drafts. */
  get share(): number {
    return this.#share;
  }

  /** In milliseconds; 0 before any was timed. */
  get passMs(): number {
    return this.#passMs;
  }

  /**
   * Learns from a step without prompts, in which the device drafted `count` ≥ 1 tokens after another in
   * `draftsMs` of its `deviceMs`.
   */
  learn(count: number, draftsMs: number, deviceMs: number): void {
    if (draftsMs <= 0 || draftsMs >= deviceMs) return;
    const passMs = draftsMs / count;
    this.#share += LATEST * (passMs / (deviceMs - draftsMs) - this.#share);
    this.#passMs += (this.#passMs === 0 ? 1 : LATEST) * (passMs - this.#passMs);
  }
}

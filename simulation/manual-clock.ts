import { assert } from "../base/assert.ts";
import { EventClock } from "./event-clock.ts";

/** Clock that moves only on request, past any number of timers. */
export class ManualClock extends EventClock {
  /** Runs timers until none is left, new ones included. Returns how many ran; more than `most` is a bug. */
  runAll(most = 1_000_000): number {
    let count = 0;
    while (this.runNext()) {
      count += 1;
      assert(count <= most, "time goes on for ever");
    }
    return count;
  }

  /** Runs everything due within the next `ms` and ends at exactly that time. */
  advance(ms: number): void {
    let isThere = false;
    this.after(ms, () => {
      isThere = true;
    });
    while (!isThere) this.runNext();
  }
}

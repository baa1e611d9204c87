import { assert } from "../base/assert.ts";
import { EventClock } from "./event-clock.ts";

/** A clock that only moves when told to, and at once over as many timers as wanted. */
export class ManualClock extends EventClock {
  /** Runs timers, also those that they set, until there are none. Returns how many ran; more than `most` is a bug. */
  runAll(most = 1_000_000): number {
    let count = 0;
    while (this.runNext()) {
      count += 1;
      assert(count <= most, "time goes on for ever");
    }
    return count;
  }

  /** Runs what is due within the next `ms` and ends at exactly that time. */
  advance(ms: number): void {
    let isThere = false;
    this.after(ms, () => {
      isThere = true;
    });
    while (!isThere) this.runNext();
  }
}

import type { Clock } from "../base/clock.ts";

/** The clock of this thread. Its timers do not keep the process alive. */
export const realClock: Clock = {
  nowMs: () => performance.now(),
  after: (delayMs, run) => {
    const timer = setTimeout(run, delayMs);
    timer.unref();
    return () => clearTimeout(timer);
  },
};

/** Undoes a timer; harmless after it ran. */
export type Cancel = () => void;

/** Port: time. Monotonic milliseconds from an arbitrary origin. Production, tests and simulation differ here. */
export interface Clock {
  nowMs(): number;
  /** Runs `run` once, on this thread, no sooner than `delayMs` from now (never from within `after`). */
  after(delayMs: number, run: () => void): Cancel;
}

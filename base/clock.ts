/** Cancels a timer; harmless after it ran. */
export type Cancel = () => void;

/**
 * Port: monotonic time in milliseconds from an arbitrary origin. Production, tests and simulation differ
 * here.
 */
export interface Clock {
  nowMs(): number;
  /** Runs `run` once, on this thread, at least `delayMs` from now (never synchronously). */
  after(delayMs: number, run: () => void): Cancel;
}

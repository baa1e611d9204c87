/**
 * Smoothing weights of a measurement below and above the estimate, and the cap of a measurement as a multiple
 * of the estimate. Other programs interrupt some transfers, and an estimate that is too high would end the
 * very loads and stores that could correct it.
 */
const LESS = 0.5;
const MORE = 0.05;
const MORE_MAX = 2;

/** Returns the estimated time after a measurement. */
export function believed(before: number, latest: number): number {
  if (latest < before) return before + LESS * (latest - before);
  return before + MORE * (Math.min(latest, MORE_MAX * before) - before);
}

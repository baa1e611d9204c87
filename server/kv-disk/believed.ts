/**
 * Weights of a measurement that is less, or more, than was believed, and how many times as much it may be at most.
 * A busy machine interrupts some, and too high a price would end the loads and stores that correct it.
 */
const LESS = 0.5;
const MORE = 0.05;
const MORE_MAX = 2;

/** Returns the time that is believed after the latest measurement. */
export function believed(before: number, latest: number): number {
  if (latest < before) return before + LESS * (latest - before);
  return before + MORE * (Math.min(latest, MORE_MAX * before) - before);
}

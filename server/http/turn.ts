/** The time of what this thread does at the moment, on the clock of `performance.now()`: all that comes of one report has one time. */

let turn: number | null = null;

/** Milliseconds. Read once, and again when what is done now, up to its first wait, is done. */
export function turnMs(): number {
  if (turn === null) {
    turn = performance.now();
    queueMicrotask(() => {
      turn = null;
    });
  }
  return turn;
}

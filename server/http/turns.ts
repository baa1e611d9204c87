/** Work that clients of HTTP cause waits here for its turn: one piece a turn of the event loop, whoever's it is. */
const waiting: (() => void)[] = [];
let isBusy = false;

/**
 * Runs `work` now if none ran in this turn of the event loop, else after what waits already. Between two pieces, all of what the first
 * one does in microtasks ends, and the thread's other work has its turn: a client that sends much at once delays others by one piece.
 */
export function inTurn(work: () => void): void {
  if (isBusy) waiting.push(work);
  else begin(work);
}

function begin(work: () => void): void {
  isBusy = true;
  setImmediate(next);
  work();
}

function next(): void {
  isBusy = false;
  const work = waiting.shift();
  if (work !== undefined) begin(work);
}

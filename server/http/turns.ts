/** Time that work caused by HTTP clients may take in one turn of the event loop. */
const SLICE_MS = 4;
/** Waiting pieces of work that one turn begins. */
const PIECES_MAX = 16;

const waiting: (() => void)[] = [];
/** Time at which the first piece of this turn began. */
let sinceMs: number | null = null;

/**
 * Runs `work` now if there is time left in this turn of the event loop, else after the waiting work. All
 * microtasks of one piece end before the next begins. So a client that sends much at once delays others by a
 * slice and a piece.
 */
export function inTurn(work: () => void): void {
  if (waiting.length === 0 && hasTime()) begin(work);
  else waiting.push(work);
}

function hasTime(): boolean {
  return sinceMs === null || performance.now() - sinceMs < SLICE_MS;
}

function begin(work: () => void): void {
  if (sinceMs === null) {
    sinceMs = performance.now();
    setImmediate(newTurn);
  }
  work();
}

/** Gives each piece a callback of its own, after which its microtasks run. */
function newTurn(): void {
  sinceMs = null;
  for (let i = Math.min(PIECES_MAX, waiting.length); i > 0; i--) setImmediate(beginNext);
}

function beginNext(): void {
  if (waiting.length > 0 && hasTime()) begin(waiting.shift()!);
}
